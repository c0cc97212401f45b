//! The `contexture` command.

fn main() -> std::process::ExitCode {
    contexture::cli::run()
}
