//! Asking a model for a summary: in one call where the material fits its window, else in pieces whose
//! notes are then put together. It only says what to ask next; who asks, and whether anybody waits, is
//! the caller's business.

use contexture_engine_api::{
    Continued, FailureKind, MessageId, ModelAnswer, ModelFailure, ModelRequest, Services, grouped,
};
use contexture_secrets::mask_secrets;

use crate::excerpt::excerpt;

/// Halvings of the pieces after "too long" before it is given up.
const MAX_HALVINGS: u32 = 4;
/// Rounds of putting notes together before it is given up.
const MAX_ROUNDS: u32 = 6;
/// The least material of a piece, in tokens.
const MIN_PIECE: u64 = 128;
/// The share of the model's window that is used: its tokenizer is not ours.
const USED_SHARE: f64 = 0.85;

/// What an engine says to the model, and how it reads the answer.
pub trait Prompts: std::fmt::Debug + Send {
    /// Instructions.
    fn system(&self) -> String;
    /// Asks for the whole summary.
    fn whole(&self, material: &str) -> String;
    /// Asks for the whole summary where the material stands before the question, in the agent's own conversation; none
    /// where that makes no sense.
    fn continued(&self) -> Option<String> {
        None
    }
    /// Asks for notes on one of several pieces, of at most so many tokens.
    fn piece(&self, material: &str, number: usize, of: usize, tokens: u64) -> String;
    /// The summary in an answer to [`whole`](Self::whole).
    ///
    /// # Errors
    /// An answer that holds none.
    fn read(&self, answer: &str) -> Result<String, ModelFailure>;
    /// The notes in an answer to [`piece`](Self::piece); by default they are read as a summary is.
    ///
    /// # Errors
    /// An answer that holds none.
    fn read_piece(&self, answer: &str) -> Result<String, ModelFailure> {
        self.read(answer)
    }
    /// Puts the notes on all pieces together without another question, if they are short enough for that.
    fn join(&self, notes: &[String]) -> Option<String> {
        let _ = notes;
        None
    }
    /// Asks for less from now on, if that may mend this failure. False if there is nothing to try.
    fn ask_for_less(&mut self, failure: &ModelFailure) -> bool {
        let _ = failure;
        false
    }
    /// What the summary may take, in tokens.
    fn budget(&self) -> u64;
    /// Brings what goes along with the material to a size that leaves the material room.
    fn fit(&mut self, fit: &dyn Fn(&str) -> String) {
        let _ = fit;
    }
}

/// Puts a text between tags that it cannot close itself.
pub fn tagged(prompt: &mut String, tag: &str, text: &str) {
    let close = format!("</{tag}");
    // The material must not be able to close its own tag.
    let text = text.replace(&close, &format!("<\\/{tag}"));
    prompt.push_str(&format!("<{tag}>\n{}\n{close}>\n\n", text.trim()));
}

/// A summary in the making.
#[derive(Debug)]
pub struct Summariser {
    prompts: Box<dyn Prompts>,
    /// The model's window, in tokens.
    window: u64,
    /// What is to be summarised: the conversation at first, notes on its pieces later.
    units: Vec<String>,
    halvings: u32,
    rounds: u32,
    asked_for_less: bool,
    /// The last message of the material, where all of it stands in the window.
    through: Option<MessageId>,
    services: Services,
}

impl Summariser {
    /// A summary of these pieces of text, by a model with a window of so many tokens.
    pub fn new(
        prompts: Box<dyn Prompts>,
        units: Vec<String>,
        window: u64,
        services: Services,
    ) -> Self {
        let mut this = Self {
            prompts,
            window,
            units,
            halvings: 0,
            rounds: 0,
            asked_for_less: false,
            through: None,
            services,
        };
        // In a small window the conversation itself comes first.
        let most = (this.usable() / 6).max(MIN_PIECE);
        let services = this.services.clone();
        // Masked before it is cut: half a secret has no shape to know it by.
        (this.prompts).fit(&|text| fit(&mask_secrets(text), most, &services));
        this
    }

    /// The same about messages that all stand in the window, up to this one: a model that has read them already can be
    /// asked without them.
    #[must_use]
    pub(crate) fn in_window(mut self, through: Option<MessageId>) -> Self {
        self.through = through;
        self
    }

    /// The calls to make now: one that asks for the summary, or several that ask for notes on a piece
    /// each.
    pub fn requests(&self) -> Vec<ModelRequest> {
        let system = self.prompts.system();
        let whole = self.prompts.whole("");
        let answer = self.answer_tokens();
        let overhead = self.tokens(&system) + answer;
        let room = |prompt: &str| {
            let left = self.usable().saturating_sub(overhead + self.tokens(prompt));
            (left >> self.halvings).max(MIN_PIECE)
        };
        let request = |prompt: String, max_tokens: u64| {
            ModelRequest::new("summary", system.clone(), prompt, max_tokens)
        };

        let in_one = self.pack(room(&whole));
        if let [material] = in_one.as_slice() {
            let continued = self.through.zip(self.prompts.continued());
            let continued = continued.map(|(through, question)| {
                Continued::new(mask_secrets(&question).into_owned(), through)
            });
            return vec![request(self.prompts.whole(material), answer).continued(continued)];
        }
        let pieces = self.pack(room(""));
        let of = pieces.len();
        // Notes of a third of the piece at most, so that each round leaves less to put together.
        let each = (room("") / 3).clamp(64, answer);
        pieces
            .iter()
            .enumerate()
            .map(|(at, material)| request(self.prompts.piece(material, at + 1, of, each), each))
            .collect()
    }

    /// Takes the answers to what [`requests`](Self::requests) asked, in its order. Some text is the summary; none means
    /// that there is more to ask.
    ///
    /// # Errors
    /// The first failure that neither smaller pieces nor a shorter answer mend.
    pub fn answered(
        &mut self,
        answers: Vec<Result<ModelAnswer, ModelFailure>>,
    ) -> Result<Option<String>, ModelFailure> {
        match self.read(answers) {
            Err(failure) if self.prompts.ask_for_less(&failure) => {
                self.asked_for_less = true;
                Ok(None)
            }
            result => result,
        }
    }

    /// Whether the model had to be asked for less than at first.
    pub fn asked_for_less(&self) -> bool {
        self.asked_for_less
    }

    fn read(
        &mut self,
        answers: Vec<Result<ModelAnswer, ModelFailure>>,
    ) -> Result<Option<String>, ModelFailure> {
        let single = answers.len() == 1;
        let mut notes = Vec::with_capacity(answers.len());
        for answer in answers {
            match answer {
                Ok(answer) if single => notes.push(self.prompts.read(&answer.text)?),
                Ok(answer) => notes.push(self.prompts.read_piece(&answer.text)?),
                Err(failure)
                    if failure.kind == FailureKind::TooLong && self.halvings < MAX_HALVINGS =>
                {
                    self.halvings += 1;
                    return Ok(None);
                }
                Err(failure) => return Err(failure),
            }
        }
        if single {
            return Ok(notes.pop());
        }
        if let Some(summary) = self.prompts.join(&notes) {
            return Ok(Some(summary));
        }
        self.rounds += 1;
        if notes.is_empty() || self.rounds > MAX_ROUNDS {
            return Err(ModelFailure::new(
                FailureKind::TooLong,
                format!(
                    "the notes on the pieces do not fit the summary model's window of {} tokens; \
                     choose a model with a larger one",
                    grouped(self.window)
                ),
            ));
        }
        self.units = notes;
        Ok(None)
    }

    /// Packs the units, in order, into pieces of at most this many tokens.
    fn pack(&self, room: u64) -> Vec<String> {
        let mut pieces: Vec<String> = Vec::new();
        let mut used = 0;
        for unit in &self.units {
            let unit = fit(unit, room, &self.services);
            let tokens = self.tokens(&unit);
            match pieces.last_mut() {
                Some(piece) if used + tokens <= room => {
                    piece.push('\n');
                    piece.push_str(&unit);
                    used += tokens + 1;
                }
                _ => {
                    pieces.push(unit);
                    used = tokens;
                }
            }
        }
        pieces
    }

    fn usable(&self) -> u64 {
        (self.window as f64 * USED_SHARE).round() as u64
    }

    fn answer_tokens(&self) -> u64 {
        self.prompts.budget().min(self.usable() / 4).max(64)
    }

    fn tokens(&self, text: &str) -> u64 {
        self.services.count_tokens(text)
    }
}

/// The text, or an excerpt of about this many tokens.
fn fit(text: &str, tokens: u64, services: &Services) -> String {
    let mut text = text.to_owned();
    for _ in 0..4 {
        let used = services.count_tokens(&text);
        if used <= tokens {
            break;
        }
        let chars = text.chars().count() as u64;
        text = excerpt(&text, (chars * tokens / used).saturating_sub(48) as usize);
    }
    text
}
