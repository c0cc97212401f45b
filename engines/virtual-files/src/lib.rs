//! The context engine `virtual-files`: what is large lies in files, which the model reads and searches with tools of
//! the engine's.
//!
//! Source: Will Larson, "Building an internal agent: Context window compaction"
//! (<https://lethain.com/agents-context-compaction/>), read in its Chinese translation. Its six points, and what is
//! made of them:
//!
//! 1. After every message of the user and every whole group of tool results stands a notice that begins with
//!    `[virtual files`: the tokens used and available, and the files. It is written once and never changed; a
//!    compaction, after which it would be out of date, takes it out.
//! 2. A message of the user or a tool result of more than 10,000 tokens becomes a file. The window shows its first
//!    1,000 tokens under `[file NAME`.
//! 3. `file_list`, `file_read` and `file_regex` are always offered.
//! 4. From 80 % of the window on, everything but the user's last message and the latest turn becomes a summary under
//!    nine headings. A model is never waited for unless somebody asked for that: the summary is prepared between turns,
//!    and where it is not there a digest takes its place.
//! 5. The window as it was before is kept as a file.
//! 6. `file_regex` searches files and earlier windows, a line at a time and in linear time.
//!
//! The document's limit of tool calls is `max_tool_calls`, counted since the user's last message: it is there to stop
//! an agent that goes astray, and the user's next word begins anew. At the limit the engine says so, in the notice that
//! is due there, and the host forbids tools in the request.
//!
//! Two things it does beyond the document. In a window of less than 40,000 tokens a message becomes a file from a quarter
//! of the window on. And where a compaction alone does not make enough room, the largest messages that stay become
//! files, too.
//!
//! # What it keeps
//! Nothing but artifacts of the session, which say what each file shows; the texts are in the host's transcript. So the
//! files go with the session wherever it goes, and another engine finds every message there. The files of messages that
//! were cut off are listed no more, but can be read under their names: the client may come back to the branch that shows
//! them.

mod calls;
mod compacting;
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

/// What `context.engine` says to choose this engine.
pub const NAME: &str = "virtual-files";

contexture_engine_api::register_engine!("virtual-files", VirtualFiles);
