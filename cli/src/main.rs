//! The `contexture` command.

fn main() -> std::process::ExitCode {
    contexture_cli::run()
}
