//! The example program of this crate, as its users run it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Output};

use contexture_provider_simulator::{Answer, Api, Simulator};

/// The program, which `cargo test` builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().join("examples");
    let program = folder.join(format!("session{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.is_file(),
        "{} is not built; run `cargo test -p custom-engine`, which builds the examples",
        program.display()
    );
    program
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_note_outlives_the_window_and_the_process() {
    let mut command = Command::new(program());
    let text = text(&command.env_remove("OPENAI_BASE_URL").output().unwrap());
    let (page, after) = text.split_once("after a restart").unwrap();
    for part in [
        "`note` answers {\"notes\":1}",
        "The user asked for:\n- Day ",
        "Notes:\n- Crate 001 belongs to the museum.",
        "- assistant : Noted for day ",
    ] {
        assert!(page.contains(part), "{part:?} is not in {text}");
    }
    assert!(
        !page.contains("crate 001 stands"),
        "the message left: {text}"
    );
    assert!(after.contains("Crate 001 belongs to the museum."), "{text}");
}

#[test]
fn a_model_writes_the_summary() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("The crates stand on shelves, says the model."));
    let mut command = Command::new(program());
    command
        .env("OPENAI_BASE_URL", format!("{}/v1", provider.base_url()))
        .env("OPENAI_API_KEY", "key")
        .env("OPENAI_MODEL", "gpt-5.2");
    let text = text(&command.output().unwrap());
    assert!(text.contains("says the model."), "{text}");
    let requests = provider.requests_of(Api::Chat);
    assert!(
        !requests.is_empty() && provider.violations().is_empty(),
        "{:?}",
        provider.violations()
    );
    let asked = String::from_utf8(requests[0].body.to_vec()).unwrap();
    assert!(asked.contains("crate 002 stands on shelf 74"), "{asked}");
}
