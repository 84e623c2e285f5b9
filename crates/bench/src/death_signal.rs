//! Programs that do not outlive this one, however it ends: the kernel kills them
//! when their parent dies, of SIGKILL too, when no destructor runs.

#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the program that `command` starts killed when the calling thread ends: to
/// be started from a thread that lasts as long as the program is wanted.
pub fn die_with_this(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Who has died before that sends no signal any more.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(Errno::SRCH)) }
    };
    // SAFETY: between fork and exec only what is async-signal-safe may be called.
    // These are two system calls; an error is a number and allocates nothing.
    unsafe { command.pre_exec(before_exec) };
}
