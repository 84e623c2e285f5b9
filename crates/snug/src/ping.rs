//! `snug ping`: whether a server answers, told by the exit code. It is a health check
//! for containers, which have no shell and no client.
//!
//! A server that asks for a password is well: it answers. One that still loads its data
//! is not, and neither is one that does not answer in time.

use clap::Args;
use snug_bench::tls::{Tls, TlsOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `snug ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Host and port, or the path of a Unix socket
    #[arg(default_value = "127.0.0.1:6379", env = "SNUG_ADDRESS")]
    address: String,
    /// Speak TLS, and take any certificate
    #[arg(long)]
    tls: bool,
    /// Seconds that the server may take
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// Asks the server; 0 if it is well.
pub(crate) fn ping(args: &PingArgs) -> ExitCode {
    let told = match answer(args) {
        Ok(line) if is_well(&line) => return print_pong(&line),
        Ok(line) => line,
        Err(error) => error.to_string(),
    };
    eprintln!("snug: {}: {told}", args.address);
    ExitCode::FAILURE
}

fn print_pong(line: &str) -> ExitCode {
    // Nobody may be there to read it.
    let _ = writeln!(io::stdout(), "{}", line.trim_start_matches(['+', '-']));
    ExitCode::SUCCESS
}

/// Whether a server that answers so serves clients.
fn is_well(line: &str) -> bool {
    ["+PONG", "-NOAUTH", "-NOPERM"].iter().any(|well| line.starts_with(well))
}

/// The first line of what the server answers to `PING`.
fn answer(args: &PingArgs) -> io::Result<String> {
    let limit = Duration::from_secs(args.timeout);
    if args.address.starts_with(['/', '.']) {
        let socket = UnixStream::connect(&args.address)?;
        socket.set_read_timeout(Some(limit))?;
        return exchange(socket);
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in args.address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => {
                socket.set_read_timeout(Some(limit))?;
                if !args.tls {
                    return exchange(socket);
                }
                let options = TlsOptions { insecure: true, ..TlsOptions::default() };
                let tls = Tls::new(&options).map_err(io::Error::other)?;
                let host = args.address.rsplit_once(':').map_or("localhost", |(host, _)| host);
                return exchange(tls.connect(host, socket)?);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn exchange(mut socket: impl Read + Write) -> io::Result<String> {
    socket.write_all(b"*1\r\n$4\r\nPING\r\n")?;
    socket.flush()?;
    let mut line = Vec::new();
    // An answer to PING is short; whoever sends more is no server of this protocol.
    let read = BufReader::new(socket.take(512)).read_until(b'\n', &mut line);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        _ => error,
    })?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
    }
    Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned())
}
