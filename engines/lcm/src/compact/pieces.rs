//! What replaces a run of the window: the summaries that are as they were stay byte for byte, and the rest is cut where
//! the next compaction is likely to begin, so that a provider's prompt cache holds what stands before.

use contexture_engine_api::{Entry, MessageId, MessageKind, MessageView};

use crate::assemble::{block, nodes_in};
use crate::dag::Node;

/// The entries for `nodes` in place of `views`. `covered` gives the first and the last message that a view stands for;
/// none where that is not known.
pub(super) fn entries(
    views: &[MessageView<'_>],
    nodes: &[&Node],
    covered: impl Fn(&MessageView<'_>) -> Option<(MessageId, MessageId)>,
) -> Vec<Entry> {
    let kept = unchanged(views, nodes);
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
        entries.push(Entry::summary(block(nodes, continued), ids));
    }
    entries
}

/// So many of the views, and so many of the nodes, from the first on.
struct Count {
    views: usize,
    nodes: usize,
}

/// The summaries that still show what they showed.
fn unchanged(views: &[MessageView<'_>], nodes: &[&Node]) -> Count {
    let mut same = Count { views: 0, nodes: 0 };
    for view in views {
        if view.kind() != MessageKind::Summary {
            break;
        }
        let end = same.nodes + nodes_in(view.text()).len();
        match nodes.get(same.nodes..end) {
            Some(shown) if !shown.is_empty() && view.text() == block(shown, same.views > 0) => {
                same.views += 1;
                same.nodes = end;
            }
            _ => break,
        }
    }
    match same.nodes == nodes.len() && same.views < views.len() {
        // What else leaves needs a summary that stands for it.
        true => Count { views: 0, nodes: 0 },
        false => same,
    }
}

/// Leaves are condensed before other nodes: the first of them, or the first one after it where no view stands for
/// messages on both sides.
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
