//! What replaces a run of the window.
//!
//! Providers cache the prefix of a prompt, and a changed byte ends the cached part. A compaction
//! should therefore leave as much of the beginning as it was. Summary blocks that still show the
//! same nodes are kept byte for byte, and only the rest of the run is written again. The rest is cut
//! into two blocks at the place where the next compaction is likely to begin, so that the first
//! block can be kept then.
//!
//! [`entries`] puts the parts together.

use contexture_digest::RuleSection;
use contexture_engine_api::{Entry, MessageId, MessageKind, MessageView};

use crate::assemble::{block, nodes_in};
use crate::dag::Node;

/// Returns the entries for `nodes` in place of `views`. `rules` gives the section of rules for a
/// block of some of the nodes. `covered` gives the first and the last message that a view stands
/// for. If it returns None for a view, nothing is known about it and the rest is one block.
pub(super) fn entries(
    views: &[MessageView<'_>],
    nodes: &[&Node],
    rules: &dyn Fn(&[&Node]) -> RuleSection,
    covered: impl Fn(&MessageView<'_>) -> Option<(MessageId, MessageId)>,
) -> Vec<Entry> {
    let kept = unchanged(views, nodes, rules);
    let mut entries: Vec<Entry> = views[..kept.views]
        .iter()
        .map(|view| Entry::Keep(view.id()))
        .collect();
    let (views, nodes) = (&views[kept.views..], &nodes[kept.nodes..]);
    let cut = cut(views, nodes, covered).unwrap_or(Count {
        views: views.len(),
        nodes: nodes.len(),
    });
    let halves = [
        (&views[..cut.views], &nodes[..cut.nodes]),
        (&views[cut.views..], &nodes[cut.nodes..]),
    ];
    for (views, nodes) in halves.into_iter().filter(|(views, _)| !views.is_empty()) {
        let ids = views.iter().map(MessageView::id).collect();
        let continued = !entries.is_empty();
        entries.push(Entry::summary(block(nodes, continued, &rules(nodes)), ids));
    }
    entries
}

/// A number of views and a number of nodes, both counted from the start of a run.
struct Count {
    views: usize,
    nodes: usize,
}

/// Returns how many of the first summaries still show exactly what they would show now, with the
/// nodes in them.
fn unchanged(
    views: &[MessageView<'_>],
    nodes: &[&Node],
    rules: &dyn Fn(&[&Node]) -> RuleSection,
) -> Count {
    let mut same = Count { views: 0, nodes: 0 };
    for view in views {
        if view.kind() != MessageKind::Summary {
            break;
        }
        let end = same.nodes + nodes_in(view.text()).len();
        match nodes.get(same.nodes..end) {
            Some(shown)
                if !shown.is_empty()
                    && view.text() == block(shown, same.views > 0, &rules(shown)) =>
            {
                same.views += 1;
                same.nodes = end;
            }
            _ => break,
        }
    }
    match same.nodes == nodes.len() && same.views < views.len() {
        // Something else leaves the window too, and some summary has to stand for it. If all nodes
        // are in blocks that stay, no block is left to do so.
        true => Count { views: 0, nodes: 0 },
        false => same,
    }
}

/// Returns where the rest is cut into two blocks. Condensing takes leaves before other nodes, so
/// the next compaction is likely to change the window from the first leaf on. The cut is there, or
/// at the first later node at which no view stands for messages on both sides. Returns None if
/// there is no such place.
fn cut(
    views: &[MessageView<'_>],
    nodes: &[&Node],
    covered: impl Fn(&MessageView<'_>) -> Option<(MessageId, MessageId)>,
) -> Option<Count> {
    let spans: Vec<_> = views.iter().map(covered).collect::<Option<_>>()?;
    let first_leaf = nodes.iter().position(|node| node.depth == 0)?;
    if first_leaf == 0 {
        return None;
    }
    (first_leaf..nodes.len()).find_map(|at| {
        let first = nodes[at..].iter().map(|node| node.first).min()?;
        let before = spans.iter().take_while(|(_, last)| *last < first).count();
        let apart = spans[before..].iter().all(|(start, _)| *start >= first);
        (apart && (1..spans.len()).contains(&before)).then_some(Count {
            views: before,
            nodes: at,
        })
    })
}
