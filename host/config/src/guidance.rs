//! Reads what the user wants of summaries: `compression.guidance`, and the file of
//! `compression.template`.
//!
//! Both are sent with every request for a summary, so their size is limited. A text that is too long
//! is an error and is not cut: half an instruction may say the opposite of the whole.

use std::io::Read;
use std::path::Path;

use contexture_base::trust;
use contexture_engine_api::grouped;
use contexture_formats::tokens::TokenCounter;

use super::check::{Found, Problem};
use super::sections::Config;
use super::yaml::KeyPath;

/// The most tokens of the guidance, and of the template.
const MOST_TOKENS: u64 = 1_000;
/// The most bytes of the template that are read. A text of so many has more than the allowed tokens.
const MOST_BYTES: u64 = 64 * 1024;

/// Returns the text of the template, and what is wrong with the two keys. `file` is the config file.
pub(crate) fn read(config: &Config, file: &Path) -> (Option<String>, Vec<Found>) {
    let compression = &config.compression;
    let mut found = Vec::new();
    let mut wrong = |key: &str, what: String| {
        let message = format!("`compression.{key}` {what}");
        let at = KeyPath::of(["compression", key]);
        found.push((at, Problem::wrong(message)));
    };
    if let Some(what) = compression.guidance.as_deref().and_then(too_long) {
        wrong("guidance", what);
    }
    let path = compression.template.as_ref();
    let path = path.map(|path| file.parent().unwrap_or(file).join(path));
    let template = path.and_then(|path| match template(&path) {
        Ok(text) => Some(text),
        Err(what) => {
            wrong("template", what);
            None
        }
    });
    (template, found)
}

/// Reads a template, or says what is wrong with it.
fn template(path: &Path) -> Result<String, String> {
    let unusable = |why: String| format!("cannot be used: {why}");
    let opened = trust::open(path).map_err(|error| unusable(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = opened.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    let path = path.display();
    read.map_err(|cause| unusable(format!("cannot read {path}: {cause}")))?;
    if bytes.len() as u64 > MOST_BYTES {
        let most = grouped(MOST_BYTES);
        return Err(unusable(format!("{path} is larger than {most} bytes")));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| unusable(format!("{path} is not UTF-8 text: save it as UTF-8")))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(unusable(format!("{path} is empty")));
    }
    too_long(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// What is wrong with a text that has too many tokens.
fn too_long(text: &str) -> Option<String> {
    let tokens = TokenCounter::for_model("").count_text(text);
    (tokens > MOST_TOKENS).then(|| {
        let (tokens, most) = (grouped(tokens), grouped(MOST_TOKENS));
        format!("has {tokens} tokens, but may have at most {most}: shorten it")
    })
}
