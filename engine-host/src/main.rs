//! Runs one context engine in a process of its own, for a host that called it with `context.isolation: process`.
//!
//! It is started by the host alone: `contexture-engine-host LIBRARY COPY MEMORY`, the plugin's library by the name that
//! messages call it, the copy to load, and the most address space in bytes (0 for any). Standard output is a socket
//! that the host connects to. The first connection is the control: it loads the library, carries what the engine asks
//! of the host outside of calls, and ends the process when it closes. Each other connection makes the factory, asks it
//! something, or is one session.

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
    eprintln!("contexture-engine-host: engines have no processes of their own on this system");
    std::process::ExitCode::FAILURE
}
