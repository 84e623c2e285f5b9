//! Clients at the other ends of pipes.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// A client: its end of the pipe.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) pipe: DuplexStream,
    pub(crate) read: Vec<u8>,
}

impl Client {
    pub(crate) fn new(pipe: DuplexStream) -> Self {
        Self { pipe, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, command: &str) {
        self.pipe.write_all(&request(command)).await.expect("the server reads");
    }

    /// The next reply: a line, a string, or the elements of an array; `None` for null and at
    /// the end.
    pub(crate) async fn reply(&mut self) -> Option<Vec<String>> {
        let line = self.line().await?;
        let count = || line[1..].parse::<i64>().expect("a length");
        match line.as_bytes()[0] {
            b'$' => Some(vec![self.bulk(count()).await?]),
            b'*' => {
                let count = usize::try_from(count()).ok()?;
                let mut elements = Vec::new();
                for _ in 0..count {
                    let head = self.line().await?;
                    elements.push(match head.strip_prefix('$') {
                        Some(len) => {
                            let len = len.parse().expect("a length");
                            self.bulk(len).await.unwrap_or_default()
                        }
                        None => head,
                    });
                }
                Some(elements)
            }
            _ => Some(vec![line]),
        }
    }

    async fn bulk(&mut self, len: i64) -> Option<String> {
        let len = usize::try_from(len).ok()?;
        self.fill(|read| read.len() >= len + 2).await?;
        let bytes: Vec<u8> = self.read.drain(..len + 2).take(len).collect();
        Some(String::from_utf8(bytes).expect("text"))
    }

    pub(crate) async fn line(&mut self) -> Option<String> {
        self.fill(|read| read.windows(2).any(|two| two == b"\r\n")).await?;
        let end = self.read.windows(2).position(|two| two == b"\r\n")?;
        let bytes: Vec<u8> = self.read.drain(..end + 2).take(end).collect();
        Some(String::from_utf8(bytes).expect("text"))
    }

    async fn fill(&mut self, is_enough: impl Fn(&[u8]) -> bool) -> Option<()> {
        while !is_enough(&self.read) {
            if self.pipe.read_buf(&mut self.read).await.expect("a pipe is read") == 0 {
                return None;
            }
        }
        Some(())
    }

    pub(crate) async fn call(&mut self, command: &str) -> Option<Vec<String>> {
        self.send(command).await;
        self.reply().await
    }

    /// What is answered with one line or one string.
    pub(crate) async fn ask(&mut self, command: &str) -> String {
        self.call(command).await.expect("an answer").remove(0)
    }

    /// Sends a command to a server that may be gone.
    pub(crate) async fn try_send(&mut self, command: &str) -> Option<()> {
        self.pipe.write_all(&request(command)).await.ok()
    }

    /// Asks a server that may be gone, or answer with nothing.
    pub(crate) async fn try_ask(&mut self, command: &str) -> Option<String> {
        self.try_send(command).await?;
        self.reply().await.map(|reply| reply.into_iter().next().unwrap_or_default())
    }
}

pub(crate) fn request(command: &str) -> Vec<u8> {
    let words: Vec<&str> = command.split(' ').collect();
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    request
}
