//! What a terminal and a manual want to know of the program: completions for shells, man
//! pages, a configuration file to begin with. All of it is made from what the program
//! itself reads: clap's commands, and the server's table of parameters.

use crate::Program;
use clap::{Arg, Args, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `snug completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that the completions are for
    shell: Shell,
}

/// Arguments of `snug man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder to write snug.1, snug-serve.1 and the others to
    folder: PathBuf,
}

/// Prints a configuration file with every parameter, commented.
pub(crate) fn config() -> ExitCode {
    print(snug_server::sample_configuration().as_bytes())
}

/// Prints a shell's completions.
pub(crate) fn completions(args: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut documented(), "snug", &mut script);
    print(&script)
}

/// Writes a man page for the program and one for each of its commands.
pub(crate) fn man(args: &ManArgs) -> ExitCode {
    match write_pages(&args.folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snug: can't write man pages to '{}': {error}", args.folder.display());
            ExitCode::FAILURE
        }
    }
}

/// To standard output. Who has read enough closes the pipe; what else goes wrong, as on a
/// full disk, is said.
fn print(text: &[u8]) -> ExitCode {
    let mut output = io::stdout();
    match output.write_all(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("snug: can't write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn write_pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(documented(), folder)
}

/// The program with the parameters of `serve` spelt out. It reads them itself, as
/// redis-server does, so clap is told of them for pages and completions alone.
fn documented() -> Command {
    let mut program = Program::command().mut_subcommand("serve", |serve| {
        let parameters = snug_server::parameters().map(|parameter| {
            let arg = Arg::new(parameter.name)
                .long(parameter.name)
                .value_name(parameter.default)
                .help(parameter.help)
                .help_heading(parameter.topic);
            if parameter.words.is_empty() {
                let hint = if parameter.is_path { ValueHint::AnyPath } else { ValueHint::Other };
                arg.value_name("VALUE").value_hint(hint)
            } else {
                arg.value_name("WORD").value_parser(parameter.words.to_vec())
            }
        });
        let file = Arg::new("file").value_name("FILE").value_hint(ValueHint::FilePath);
        let help = |name: &'static str, text: &'static str| {
            Arg::new(name).long(name).help(text).action(clap::ArgAction::SetTrue)
        };
        Command::new("serve")
            .about(serve.get_about().cloned().unwrap_or_default())
            .disable_help_flag(true)
            .arg(file.help("A configuration file in Redis's format; - for standard input"))
            .arg(help("help", "Explain the server's parameters, or one topic or parameter"))
            .arg(help("help-all", "Explain all parameters"))
            .args(parameters)
    });
    program = without_help_commands(program);
    program.build();
    program
}

/// `help` repeats every command below itself: nobody reads pages about that.
fn without_help_commands(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_string()).collect();
    let command = command.disable_help_subcommand(true);
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, without_help_commands))
}
