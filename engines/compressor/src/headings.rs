//! The headings that this engine's summaries are written under.

use contexture_summaries::Headings;

/// The headings for [`Notes`](contexture_summaries::Notes). The text in brackets tells the model
/// what belongs under each heading.
pub(crate) static HEADINGS: Headings = Headings {
    template: "\
## Goal
[what the user wants to reach]

## Constraints & Preferences
[what the user asked to be done in a certain way, limits, style]

## Progress
### Done
[finished work: paths, commands, results]
### In Progress
[what was being worked on at the end]
### Blocked
[what stands in the way]

## Key Decisions
[decisions and their reasons]

## Relevant Files
[each file read, changed or made, and why it matters]

## Next Steps
[what remains]

## Critical Context
[exact values, error messages, settings, identifiers]",
    finished: "move what got finished from In Progress to Done",
};
