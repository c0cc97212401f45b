//! The context engine `virtual-files`: large content lies in files, which the model reads and
//! searches with tools of the engine.
//!
//! It follows Will Larson, "Building an internal agent: Context window compaction"
//! (<https://lethain.com/agents-context-compaction/>), read in its Chinese translation. The article
//! makes six points, which the engine implements like this:
//!
//! 1. A notice that begins with `[virtual files` follows every message of the user and every
//!    complete group of tool results. It names the tokens used and available, and the files. It is
//!    written once and never changed. A compaction removes it, because its figures would be
//!    outdated.
//! 2. A message of the user or a tool result of more than 10,000 tokens becomes a file. The window
//!    shows its first 1,000 tokens under `[file NAME`.
//! 3. The tools `file_list`, `file_read` and `file_regex` are always offered.
//! 4. From 80 % of the window on, everything but the user's last message and the latest turn
//!    becomes a summary under nine headings. The engine does not wait for a model unless somebody
//!    asked for that: the summary is prepared between turns, and if it is not ready, a digest
//!    replaces it.
//! 5. The window as it was before a compaction is kept as a file.
//! 6. `file_regex` searches files and earlier windows, line by line and in linear time.
//!
//! The article's limit of tool calls is the setting `max_tool_calls`. It stops an agent that goes
//! astray, so it counts from the user's last message. At the limit the notice says so, and the host
//! forbids tools in the request.
//!
//! The engine goes beyond the article in two points. In a window of less than 40,000 tokens a
//! message becomes a file from a quarter of the window on. And if a compaction alone does not make
//! enough room, the largest messages that stay become files too.
//!
//! # What it keeps
//! The engine stores only artifacts of the session, which say what each file shows. The texts are
//! in the host's transcript. So the files go with the session wherever it goes, and another engine
//! finds every message there. If messages are cut off, their files are no longer listed but can
//! still be read under their names, because the client may return to the branch that shows them.

mod calls;
mod engine;
mod files;
mod headings;
mod notice;
mod plan;
mod preview;
mod settings;
mod tools;

pub use engine::VirtualFiles;
pub use settings::Settings;

/// The value of `context.engine` in the configuration that chooses this engine.
pub const NAME: &str = "virtual-files";

contexture_engine_api::register_engine!("virtual-files", VirtualFiles);

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
