//! Reads the `traceparent` header of W3C Trace Context.

use http::HeaderMap;

use crate::headers;

/// The header that names the trace of a request, and the span of its sender.
pub(crate) const TRACE_PARENT: &str = "traceparent";

/// The parts of a `traceparent` header, in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "otel"), allow(dead_code))]
pub(crate) struct TraceParent<'h> {
    pub(crate) trace: &'h str,
    pub(crate) span: &'h str,
    pub(crate) flags: &'h str,
}

/// Reads the `traceparent` header. None if there is no such header or it is not valid.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent<'_>> {
    let parent = headers::text(headers, TRACE_PARENT)?;
    let is_hex = |text: &str, length| {
        text.len() == length && (text.bytes()).all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let mut parts = parent.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (span, flags) = (parts.next()?, parts.next()?);
    // Later versions may append parts.
    let is_valid = is_hex(version, 2)
        && version != "ff"
        && (version != "00" || parts.next().is_none())
        && is_hex(trace, 32)
        && !is_zero(trace)
        && is_hex(span, 16)
        && !is_zero(span)
        && is_hex(flags, 2);
    is_valid.then_some(TraceParent { trace, span, flags })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_a_valid_parent_names_a_trace() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let span = "b7ad6b7169203331";
        for (parent, is_valid) in [
            (format!("00-{trace}-{span}-01"), true),
            (format!("00-{trace}-{span}-00"), true),
            (
                format!("cc-{trace}-{span}-01-what-the-future-will-be"),
                true,
            ),
            (format!("00-{trace}-{span}-01-more"), false),
            (format!("ff-{trace}-{span}-01"), false),
            (format!("00-{}-{span}-01", "0".repeat(32)), false),
            (format!("00-{trace}-{}-01", "0".repeat(16)), false),
            (format!("00-{}-{span}-01", trace.to_uppercase()), false),
            (format!("00-{trace}-{span}"), false),
            ("nonsense".to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(TRACE_PARENT, parent.parse().unwrap());
            let found = trace_parent(&headers);
            assert_eq!(
                found.map(|found| found.trace),
                is_valid.then_some(trace),
                "{parent}"
            );
            assert!(found.is_none_or(|found| found.span == span), "{parent}");
        }
    }
}
