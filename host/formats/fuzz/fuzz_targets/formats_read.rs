//! Any text is read or refused, and what is read can be rendered.
#![no_main]

use contexture_formats::{Format, PlanEntry, RenderPlan, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|document: &str| {
    let formats = Format::ALL.into_iter().map(Some).chain([None]);
    for conversation in formats.filter_map(|format| read(document, format).ok()).flatten() {
        let window = RenderPlan {
            entries: vec![PlanEntry::Summary { text: "summary" }, PlanEntry::Message(0)],
            system_note: Some("note"),
        };
        let _ = conversation.render(&window);
        for format in Format::ALL {
            let _ = conversation.convert(&window, format);
        }
    }
});
