//! A temporary server of PostgreSQL.

#![allow(dead_code)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The script of the repository that starts a server.
fn script() -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let script =
        folders.find_map(|folder| Some(folder.join(".ci/postgres")).filter(|at| at.exists()));
    script.unwrap()
}

/// A server that runs for as long as this lives.
pub(crate) struct Server {
    folder: TempDir,
    port: u16,
}

impl Server {
    /// Starts a server of its own. None if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let folder = tempfile::tempdir().unwrap();
        #[cfg(unix)]
        {
            // The server may run as another user.
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(folder.path(), mode).unwrap();
        }
        let server = Self { folder, port };
        match server.script("start").code() {
            Some(0) => Some(server),
            Some(3) => {
                eprintln!(
                    "SKIPPED on PostgreSQL: it is not installed, and CONTEXTURE_TEST_DATABASE_URL names no server"
                );
                None
            }
            code => panic!("the server does not start: {code:?}"),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    fn script(&self, what: &str) -> std::process::ExitStatus {
        let mut script = Command::new(script());
        script.arg(what).arg(self.data());
        if what == "start" {
            script.arg(self.port.to_string());
        }
        script.status().unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://contexture@{}/postgres", self.address())
    }

    /// Ends the server as a crash would.
    pub(crate) fn crash(&self) {
        assert!(self.script("crash").success());
    }

    pub(crate) fn start_again(&self) {
        assert!(self.script("start").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.script("crash");
    }
}
