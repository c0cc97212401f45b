//! The headings that this engine's summaries are written under.

use contexture_summaries::Headings;

/// The sections that the article's compaction prompt asks for, in our own words. The text in
/// brackets tells the model what belongs under each heading.
pub(crate) static HEADINGS: Headings = Headings {
    template: "\
## 1. Request and Intent
[everything the user asked for, and why, in detail]

## 2. Key Concepts
[technologies, methods and terms that the work rests on]

## 3. Files and Code
[each file that was read, changed or made: its path, why it matters, the decisive lines as they stand]

## 4. Errors and Fixes
[each error message, what caused it, how it was mended, what the user said to it]

## 5. Problems Solved
[what was found out, and what is still being looked for]

## 6. The User's Messages
[every message of the user that is no tool result, in order, in the user's own words]

## 7. Open Tasks
[what the user asked for and is not done]

## 8. Current Work
[exactly what was being done at the end: files, commands, values]

## 9. Next Step
[the next step, if the user's latest request asks for one, with a quote that shows it]",
    finished: "take what got finished out of Open Tasks",
};
