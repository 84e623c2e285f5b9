//! `snug convert`: from RDB to Snug's format and back, value by value.

use super::{Keys, Kind, bar, open, store};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use snug_rdb::{Event, FieldTimes, Meta, Options, ReadOptions, Reader, Writer};
use snug_store::image::{ImageReader, ImageWriter, Part, Trust};
use snug_store::types::stream::StreamScratch;
use snug_store::{Limits, Session, Store};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes a file of Snug's format of an RDB file, or the other way round.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The file to read: RDB, or Snug's format
    input: PathBuf,
    /// The file to write, which must not be there
    output: PathBuf,
    /// The format to write; that which the input is not in, if it is not told
    #[arg(long)]
    to: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// RDB, as Redis 7.0 loads it
    Rdb,
    /// Snug's own
    Snug,
}

/// Runs the command.
pub(crate) fn convert(args: &ConvertArgs) -> ExitCode {
    match run(args) {
        Ok(keys) => {
            println!("{keys} keys written to {}", args.output.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("snug convert: {error}");
            ExitCode::FAILURE
        }
    }
}

type Failed = Box<dyn std::error::Error>;

/// Converts a file; how many keys there were. What is there under the name in the end is
/// whole.
fn run(args: &ConvertArgs) -> Result<u64, Failed> {
    let at = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let (mut input, len) = open(&args.input).map_err(|e| at(&args.input, e))?;
    let kind = Kind::of(&args.input, &mut input).map_err(|e| at(&args.input, e))?;
    let to = args.to.unwrap_or(if kind == Kind::Rdb { Format::Snug } else { Format::Rdb });
    if args.output.exists() {
        return Err(format!("{} is there already", args.output.display()).into());
    }
    let mut temporary = args.output.as_os_str().to_owned();
    temporary.push(".part");
    let temporary = PathBuf::from(temporary);
    let output = File::create(&temporary).map_err(|e| at(&temporary, e))?;
    let bar = bar("converting", len);
    let store = store();
    let written = match to {
        Format::Rdb => {
            let out = RdbOut::new(output, &store);
            pass(kind, input, &store, &bar, out)
        }
        Format::Snug => {
            let mut out = ImageWriter::new(output, &store)?;
            out.frame(std::thread::available_parallelism().map_or(1, usize::from))?;
            pass(kind, input, &store, &bar, ImageOut { out, store: &store })
        }
    };
    bar.finish_and_clear();
    let done = written.and_then(|(keys, file)| {
        file.sync_all()?;
        fs::rename(&temporary, &args.output)?;
        Ok(keys)
    });
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done.map_err(|error| format!("{}: {error}", args.input.display()).into())
}

/// A file that is written.
trait Out {
    fn aux(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failed>;
    fn function(&mut self, code: &[u8]) -> Result<(), Failed>;
    fn entry(&mut self, db: usize, value: &snug_store::Detached) -> Result<(), Failed>;
    fn end(self) -> Result<File, Failed>;
}

struct RdbOut<'s> {
    out: Writer<File>,
    session: Session,
    scratch: StreamScratch,
    begun: bool,
    _store: &'s Store,
}

impl<'s> RdbOut<'s> {
    fn new(file: File, store: &'s std::sync::Arc<Store>) -> Self {
        let options = Options { field_times: FieldTimes::Aux, ..Options::DEFAULT };
        let (session, scratch) = (store.session(), StreamScratch::new());
        Self { out: Writer::new(file, options), session, scratch, begun: false, _store: store }
    }

    fn begin(&mut self) -> Result<(), Failed> {
        if !std::mem::replace(&mut self.begun, true) {
            self.out.header(&[])?;
        }
        Ok(())
    }
}

impl Out for RdbOut<'_> {
    fn aux(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failed> {
        self.begin()?;
        Ok(self.out.aux(name, value)?)
    }

    fn function(&mut self, code: &[u8]) -> Result<(), Failed> {
        self.begin()?;
        Ok(self.out.function(code)?)
    }

    fn entry(&mut self, db: usize, value: &snug_store::Detached) -> Result<(), Failed> {
        self.begin()?;
        let with = (&self.session, &mut self.scratch);
        Ok(self.out.entry(db, value, Meta::default(), with)?)
    }

    fn end(mut self) -> Result<File, Failed> {
        self.begin()?;
        Ok(self.out.end()?)
    }
}

struct ImageOut<'s> {
    out: ImageWriter<'s, File>,
    store: &'s Store,
}

impl Out for ImageOut<'_> {
    fn aux(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failed> {
        Ok(self.out.aux(name, value)?)
    }

    fn function(&mut self, code: &[u8]) -> Result<(), Failed> {
        Ok(self.out.function(code)?)
    }

    fn entry(&mut self, db: usize, value: &snug_store::Detached) -> Result<(), Failed> {
        Ok(self.out.entry(db, value)?)
    }

    fn end(mut self) -> Result<File, Failed> {
        if !self.store.families().all().is_empty() {
            self.out.families()?;
        }
        Ok(self.out.end()?)
    }
}

/// Passes all of the input on; how many keys there were, and the file that was written.
fn pass(
    kind: Kind,
    input: impl Read,
    store: &std::sync::Arc<Store>,
    bar: &ProgressBar,
    mut out: impl Out,
) -> Result<(u64, File), Failed> {
    let (session, limits) = (store.session(), Limits::DEFAULT);
    let (mut keys, mut seen) = (0, Keys::default());
    match kind {
        Kind::Rdb => {
            let mut making = session.making(&limits);
            let mut reader = Reader::new(input, ReadOptions::DEFAULT)?;
            let mut db = 0;
            loop {
                bar.set_position(reader.offset());
                match reader.next()? {
                    Event::Key(head) => {
                        reader.value(&head, &mut making)?;
                        let key = store.key(&head.key);
                        if let Some(value) = making.finish(&key, head.expiry, None) {
                            seen.add(db, &head.key)?;
                            out.entry(db, &value)?;
                            keys += 1;
                        }
                    }
                    Event::Database(number) => db = usize::try_from(number)?,
                    Event::Aux(name, value) => out.aux(&name, &value)?,
                    Event::Function(code) => out.function(&code)?,
                    Event::ModuleAux(name) => eprintln!("data of the module '{name}' is left out"),
                    Event::Sizes { .. } | Event::Slot { .. } => {}
                    Event::End => break,
                }
            }
        }
        Kind::Snug => {
            let mut reader = ImageReader::new(input, &session, &limits, Trust::Nobody)?;
            loop {
                bar.set_position(reader.offset());
                match reader.next()? {
                    Part::Entry(db, value) => {
                        seen.add(db, &value.key())?;
                        out.entry(db, &value)?;
                        keys += 1;
                    }
                    Part::Aux(name, value) => out.aux(&name, &value)?,
                    Part::Function(code) => out.function(&code)?,
                    Part::End => break,
                }
            }
        }
        Kind::AppendOnly | Kind::Manifest | Kind::Unknown => {
            return Err("neither RDB nor Snug's format".into());
        }
    }
    Ok((keys, out.end()?))
}
