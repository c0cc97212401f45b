//! Prices images and documents in tokens, by each provider's published formula.
//!
//! [`MediaPrices::of`] selects the formula of a model by its name, and [`MediaPrices::tokens`]
//! applies it to a [`MediaSize`]. The formulas depend on the size in pixels, because providers
//! scale an image and then cut it into tiles or patches.
//!
//! If a size is not known, a typical one is assumed, so that media never count as nothing. To
//! add a model, add a row to [`IMAGES`] or [`PAGES`]. The longest matching name wins, so a
//! family needs a row only for its exceptions.

use super::image_size;
use super::model_name::ModelName;
use crate::message::{Media, MediaKind};

/// A part of a message that is not text. Its base64 is never counted as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaSize {
    /// An image.
    Image {
        /// Width and height in pixels, if known. [`image_size`](super::image_size) reads them
        /// from the data. An image of unknown size counts as 1024 by 1024.
        size: Option<(u32, u32)>,
        /// The requested level of detail.
        detail: Detail,
    },
    /// A PDF, which models see page by page. A plain-text document is text, so count it as text
    /// instead.
    Document {
        /// The number of pages, if known. Otherwise every 50 KB count as one.
        pages: Option<u32>,
        /// The size of the decoded document in bytes.
        bytes: u64,
    },
    /// Anything else, such as audio or a file that is only referenced. It counts as an image of
    /// unknown size.
    Unknown,
}

impl MediaSize {
    /// The size of a file with this data. If the request does not say how large an image is, its bytes
    /// are looked at.
    pub fn of(media: &Media, data: &str) -> Self {
        match media.kind {
            MediaKind::Image => Self::Image {
                size: (media.width.zip(media.height))
                    .or_else(|| media.is_base64.then(|| image_size(data)).flatten()),
                detail: media.detail.as_deref().map_or(Detail::High, Detail::parse),
            },
            MediaKind::Document => Self::Document {
                pages: None,
                // Base64 takes four characters for three bytes.
                bytes: match media.is_base64 {
                    true => data.len() as u64 / 4 * 3,
                    false => 0,
                },
            },
            MediaKind::Audio => Self::Unknown,
        }
    }
}

/// The `detail` of an image in OpenAI's format. Other providers have no such setting, and their
/// images count as `High`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// The model sees the image at 512 by 512 pixels.
    Low,
    /// The model sees the image as large as it can, which is also what `auto` amounts to.
    #[default]
    High,
}

impl Detail {
    /// Parses OpenAI's name of a detail. Anything except `low` is `High`.
    pub fn parse(detail: &str) -> Self {
        if detail == "low" {
            Self::Low
        } else {
            Self::High
        }
    }
}

const UNKNOWN_SIZE: (u32, u32) = (1024, 1024);

/// The bytes of a PDF that count as one page if the number of pages is unknown. It is between a
/// page of text (some 10 to 50 KB with its share of the fonts) and a scan (some 100 KB).
const BYTES_PER_PAGE: u64 = 50_000;

/// The prices of one model for images and documents. [`MediaPrices::of`] finds them by the model's
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MediaPrices {
    image: &'static ImageFormula,
    tokens_per_page: u32,
}

/// How a model derives the tokens of an image from its size in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ImageFormula {
    /// Anthropic: one token for each 28 by 28 pixels, after the image is scaled down to fit
    /// both limits.
    Anthropic { longest_edge: u32, most_tokens: u64 },
    /// OpenAI: a base price for the image, and a price for each tile of 512 by 512 pixels.
    Tiles { base: u64, tile: u64 },
    /// OpenAI's smaller and newer models: patches of 32 by 32 pixels, each worth some
    /// hundredths of a token. The image is scaled down if it has too many patches.
    Patches { most: u64, hundredths: u64 },
    /// Gemini before version 3: 258 for a small image, else 258 for each tile of 768 by 768
    /// pixels.
    GeminiTiles,
    /// The same number of tokens for every image.
    Fixed(u64),
}

use ImageFormula::{Anthropic, Fixed, GeminiTiles, Patches, Tiles};

/// The formulas by the beginning of the model's name. The longest matching name counts.
/// Sources:
/// - OpenAI: platform.openai.com, "Images and vision", calculating costs. For GPT-5 mini and
///   nano and from GPT-5.2 on, the values are what the API reports, because the page was wrong
///   (community.openai.com/t/1377015).
/// - Gemini: ai.google.dev, "Understand and count tokens", and for version 3 "Media
///   resolution".
const IMAGES: &[(&str, ImageFormula)] = &[
    ("gpt-4o-mini", tiles(2833, 5667)),
    ("gpt-4-1-mini", patches(1536, 162)),
    ("gpt-4-1-nano", patches(1536, 246)),
    ("o1", tiles(75, 150)),
    ("o3", tiles(75, 150)),
    ("o4-mini", patches(1536, 172)),
    ("codex-mini", patches(1536, 172)),
    ("gpt-5", tiles(70, 140)),
    ("gpt-5-mini", patches(1536, 120)),
    ("gpt-5-nano", patches(1536, 150)),
    ("gpt-5-2", patches(1536, 120)),
    ("gpt-5-3", patches(1536, 120)),
    ("gpt-5-4", patches(2500, 120)),
    ("gpt-5-5", patches(2500, 120)),
    ("gpt-5-6", patches(2500, 120)),
    ("gpt-6", patches(2500, 120)),
    ("gemini", Fixed(1120)),
    ("gemini-1-5", GeminiTiles),
    ("gemini-2-0", GeminiTiles),
    ("gemini-2-5", GeminiTiles),
];

/// The formula of GPT-4o and GPT-4.1, and for all other models. Most OpenAI-compatible servers
/// imitate it.
const OTHER_IMAGES: ImageFormula = tiles(85, 170);

const fn tiles(base: u64, tile: u64) -> ImageFormula {
    Tiles { base, tile }
}

const fn patches(most: u64, hundredths: u64) -> ImageFormula {
    Patches { most, hundredths }
}

/// The tokens of one page of a PDF, by the beginning of the model's name. Anthropic states
/// 1,500 to 3,000 for the text and adds the page as an image (platform.claude.com, "PDF
/// support"). Gemini states 258, and 560 from version 3 on.
const PAGES: &[(&str, u32)] = &[
    ("claude", 3000),
    ("gemini", 560),
    ("gemini-1-5", 258),
    ("gemini-2-0", 258),
    ("gemini-2-5", 258),
];

/// The tokens of a page for all other models: its text and an image of it, at OpenAI's prices.
const OTHER_PAGE: u32 = 2000;

impl MediaPrices {
    pub(super) fn of(model: &ModelName) -> Self {
        // The larger limits came with version 4.7 (platform.claude.com, "Vision").
        let image = match model.claude_version() {
            Some(version) if version >= (4, 7) => &Anthropic {
                longest_edge: 2576,
                most_tokens: 4784,
            },
            Some(_) => &Anthropic {
                longest_edge: 1568,
                most_tokens: 1568,
            },
            None => model.find_in(IMAGES).unwrap_or(&OTHER_IMAGES),
        };
        Self {
            image,
            tokens_per_page: model.find_in(PAGES).copied().unwrap_or(OTHER_PAGE),
        }
    }

    pub(super) fn tokens(&self, media: &MediaSize) -> u64 {
        match *media {
            MediaSize::Image { size, detail } => {
                self.image.tokens(size.unwrap_or(UNKNOWN_SIZE), detail)
            }
            MediaSize::Document { pages, bytes } => {
                let pages = pages.map_or(bytes.div_ceil(BYTES_PER_PAGE), u64::from);
                // Even an empty document costs something, and a huge one must not overflow.
                pages.max(1).saturating_mul(u64::from(self.tokens_per_page))
            }
            MediaSize::Unknown => self.image.tokens(UNKNOWN_SIZE, Detail::High),
        }
    }
}

impl ImageFormula {
    fn tokens(&self, (width, height): (u32, u32), detail: Detail) -> u64 {
        let (width, height) = (f64::from(width.max(1)), f64::from(height.max(1)));
        match *self {
            Anthropic {
                longest_edge,
                most_tokens,
            } => {
                let scale = (f64::from(longest_edge) / width.max(height)).min(1.0);
                squares(width * scale, height * scale, 28.0).min(most_tokens)
            }
            Tiles { base, .. } if detail == Detail::Low => base,
            Tiles { base, tile } => {
                // The image is fitted into 2048 by 2048, and then its shorter side into 768.
                let fit = (2048.0 / width.max(height)).min(1.0);
                let shorter = (768.0 / (width.min(height) * fit)).min(1.0);
                let scale = fit * shorter;
                base + tile * squares(width * scale, height * scale, 512.0)
            }
            Patches { most, hundredths } => {
                let patches = squares(width, height, 32.0);
                let patches = if patches > most {
                    shrunk_patches(width, height, most)
                } else {
                    patches
                };
                (patches * hundredths).div_ceil(100)
            }
            GeminiTiles if width <= 384.0 && height <= 384.0 => 258,
            GeminiTiles => 258 * squares(width, height, 768.0),
            Fixed(tokens) => tokens,
        }
    }
}

/// The number of squares of this size that cover an area. It is at least 1.
fn squares(width: f64, height: f64, size: f64) -> u64 {
    // A rounding remainder of the scaling must not count as another square.
    let along = |length: f64| ((length / size) - 1e-6).ceil().max(1.0);
    (along(width) * along(height)) as u64
}

/// The number of patches of an image that has too many, by OpenAI's rule: the image shrinks to
/// the budget, and then a little more so that one side is a whole number of patches.
fn shrunk_patches(width: f64, height: f64, most: u64) -> u64 {
    let shrink = (32.0 * 32.0 * most as f64 / (width * height)).sqrt();
    let (across, down) = (width * shrink / 32.0, height * shrink / 32.0);
    let whole = (across.floor() / across).min(down.floor() / down);
    if whole > 0.0 {
        squares(across * whole, down * whole, 1.0).min(most)
    } else {
        // The image is a strip thinner than a patch, so no side can be whole.
        most
    }
}

#[cfg(test)]
mod tests;
