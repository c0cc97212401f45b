//! The provider simulator and the gateway as processes of their own, which end with the test.
//!
//! [`Provider`] is the simulator. It records every request in a folder, from which a test reads
//! what became of them. [`serve`] starts a gateway in a home directory, which
//! [`Provider::configure`] makes use of the simulator.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use contexture_provider_simulator::address_in;
use serde_json::Value;
use tempfile::TempDir;

use crate::{Agent, programs};

/// A process that ends with the test.
pub struct Running {
    child: Child,
    /// Where it listens, without `http://`.
    pub address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The provider, in a separate process.
pub struct Provider {
    running: Running,
    folder: TempDir,
}

impl Provider {
    /// Starts one with a window of so many tokens. Its model works in so many steps, each with so many bytes of output.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start(window: u64, steps: u64, result: u64, agent: Agent) -> Self {
        let talk = ["--talk", &result.to_string()];
        let more = if agent == Agent::Aider {
            &talk[..]
        } else {
            &[]
        };
        Self::start_with(window, steps, result, more)
    }

    /// The same with more arguments for the provider.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start_with(window: u64, steps: u64, result: u64, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(programs().join("contexture-provider-simulator"));
        command.args(["0", &window.to_string()]);
        command.args(["--rounds", &steps.to_string()]);
        command.args(["--result", &result.to_string()]);
        command.args(more);
        command.arg("--record").arg(folder.path());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().trim_start_matches("http://").to_owned();
        Self {
            running: Running { child, address },
            folder,
        }
    }

    /// Its address, without `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.running.address)
    }

    /// What became of all requests. The provider writes the file shortly after it answers.
    pub fn report(&self) -> Value {
        std::thread::sleep(Duration::from_millis(300));
        let text = std::fs::read_to_string(self.folder.path().join("report.json"));
        serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default()
    }

    /// The body of a request in the report.
    pub fn body(&self, request: &Value) -> Value {
        let path = self
            .folder
            .path()
            .join(format!("{}.json", request["number"]));
        serde_json::from_slice(&std::fs::read(path).unwrap_or_default()).unwrap_or_default()
    }

    /// Writes the configuration of a gateway that passes requests on to this provider.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn configure(&self, home: &Path, engine: &str, window: u64) {
        let base = self.base_url();
        let config = format!(
            "upstream:\n  openai: {{base_url: \"{base}/v1\"}}\n  anthropic: {{base_url: \"{base}\"}}\n  \
             chatgpt: {{base_url: \"{base}/backend-api/codex\"}}\n  google: {{base_url: \"{base}\"}}\n\
             context: {{engine: {engine}}}\nmodel: {{context_length: {window}}}\n"
        );
        std::fs::create_dir_all(home).unwrap();
        std::fs::write(home.join("config.yaml"), config).unwrap();
    }
}

/// Starts a gateway, in a separate process, with the configuration in a home directory and an address of its own.
///
/// # Panics
///
/// If it cannot be started.
pub fn serve(home: &Path) -> Running {
    let mut command = Command::new(programs().join("contexture"));
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.env("CONTEXTURE_HOME", home);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let address = address_in(&mut said);
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Running { child, address }
}
