//! Runs one context engine in a process of its own. A host starts it if `context.isolation` is
//! `process`.
//!
//! Usage: `contexture-engine-host LIBRARY COPY MEMORY`. `LIBRARY` is the path of the plugin as
//! messages show it, `COPY` is the file to load, and `MEMORY` is the limit of the address space in
//! bytes, or 0 for no limit. Standard output is a socket that the host connects to.
//!
//! The first connection is the control connection. It loads the library, carries the calls of the
//! host's services that the engine makes outside of any call to it, and ends the process when it
//! closes. Every other connection makes the factory, sends a command to it, or serves one session.
//!
//! Read [`serving::run`] first. The module `services` is what an engine calls.

#[cfg(unix)]
mod services;
#[cfg(unix)]
mod serving;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    match serving::run(std::env::args_os().skip(1)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("contexture-engine-host: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(unix))]
fn main() -> std::process::ExitCode {
    eprintln!(
        "contexture-engine-host: engines cannot run in processes of their own on this system"
    );
    std::process::ExitCode::FAILURE
}
