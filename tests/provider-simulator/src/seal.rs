//! What the simulator signs, so that it knows it again: thinking, and encrypted reasoning.

use hmac_sha256::HMAC;

/// Always the same: what one simulator signed, another knows.
const KEY: &[u8] = b"the simulator's own key, worth nothing";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The signature of a thinking block with this text.
pub fn signature(thinking: &str) -> String {
    let one = |number: u8| hex(&HMAC::mac([&[number], thinking.as_bytes()].concat(), KEY));
    // As long as a short one of the provider's. Google's clients decode the base64.
    format!("Eq{}{}{}==", one(0), one(1), one(2))
}

/// Opaque text that carries its own proof: the `data` of redacted thinking, the `encrypted_content` of reasoning.
pub fn encrypted(reasoning: &str) -> String {
    let payload = hex(&HMAC::mac(reasoning, KEY));
    let proof = hex(&HMAC::mac(&payload, KEY));
    format!("gAAAAAB{payload}{proof}==")
}

/// Whether this came from [`encrypted`], and nobody changed it.
pub(crate) fn is_encrypted(text: &str) -> bool {
    let inner = text
        .strip_prefix("gAAAAAB")
        .and_then(|text| text.strip_suffix("=="));
    let split = inner.and_then(|inner| inner.split_at_checked(64));
    split.is_some_and(|(payload, proof)| hex(&HMAC::mac(payload, KEY)) == proof)
}
