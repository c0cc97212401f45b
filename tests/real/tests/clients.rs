//! The providers' own Python clients.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

use contexture_real::installed;
use contexture_stand_in::{Coder, Options, StandIn};

#[test]
#[cfg_attr(not(installed_clients), ignore = "needs `tests/real/install clients`")]
fn the_official_clients_understand_every_answer() {
    for piece in [0, 5] {
        let provider = StandIn::with(Options {
            piece,
            ..Options::default()
        });
        let coder = Coder {
            rounds: 6,
            ..Coder::default()
        };
        provider.answer_with(move |request| coder.answer(request));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients.py");
        let mut python = Command::new(installed().join("clients/bin/python"));
        let ran = python
            .arg(script)
            .arg(provider.base_url())
            .env("NO_PROXY", "*")
            .output()
            .unwrap();
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        // The two that the script sends on purpose.
        let broken: Vec<_> = provider
            .violations()
            .iter()
            .map(|one| one.rule.name)
            .collect();
        assert_eq!(broken, ["first-user", "chat-result"]);
    }
}
