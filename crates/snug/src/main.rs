//! The `snug` binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: snug_store::memory::Allocator = snug_store::memory::Allocator;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((command, flags)) if command == "serve" => snug_server::serve(flags),
        _ => {
            eprintln!("Usage: snug serve [FILE] [--NAME VALUE]...");
            ExitCode::FAILURE
        }
    }
}
