//! What a message must hold.
