//! Asks a model for a summary: in one call if the material fits its window, otherwise in pieces
//! whose notes are then merged.
//!
//! [`Summariser`] only says what to ask next and reads the answers. Call `requests`, make the
//! calls, hand the answers to `answered`, and repeat until it returns a text or an error. Who makes
//! the calls and whether anybody waits for them is decided by the caller. The wording comes from
//! the engine through [`Prompts`]. If a provider says that a request is too long, the pieces are
//! halved, because its tokenizer may count more tokens than ours.

use contexture_engine_api::{
    Continued, FailureKind, MessageId, ModelAnswer, ModelFailure, ModelRequest, Services, grouped,
};
use contexture_secrets::mask_secrets;

use crate::answer::text_in;
use crate::excerpt::excerpt_within;

/// How often the pieces are halved after a provider said "too long", before the summary fails.
const MAX_HALVINGS: u32 = 4;
/// How many rounds of merging notes are made before the summary fails.
const MAX_ROUNDS: u32 = 6;
/// The smallest amount of material in a piece, in tokens.
const MIN_PIECE: u64 = 128;
/// The share of the model's window that is used. The rest is a margin, because the model's
/// tokenizer differs from ours.
const USED_SHARE: f64 = 0.85;

/// What an engine says to the model, and how it reads the answer. One value serves one summary.
pub trait Prompts: std::fmt::Debug + Send {
    /// The system prompt, which is the same for every request of this summary.
    fn system(&self) -> String;
    /// The prompt for the whole summary. `material` is all of the conversation to summarise, or the
    /// notes on its pieces.
    fn whole(&self, material: &str) -> String;
    /// The prompt for the whole summary if the material precedes the question in the agent's own
    /// conversation. `None` if an engine does not support that, which is the default.
    fn continued(&self) -> Option<String> {
        None
    }
    /// The part of [`system`](Self::system) that says how the summary is laid out, which the user may
    /// replace. An empty text allows any layout, and `None`, the default, only the engine's own.
    fn layout(&self) -> Option<String> {
        None
    }
    /// The prompt for notes on piece `number` of `of`, counted from 1. The notes may take at most
    /// `tokens` tokens.
    fn piece(&self, material: &str, number: usize, of: usize, tokens: u64) -> String;
    /// Reads the summary in the text of an answer to [`whole`](Self::whole). Secrets, control
    /// characters and what models write around a summary are removed from the text already, and a
    /// refusal or an empty answer does not get here.
    ///
    /// # Errors
    /// A failure if the answer holds no summary, for instance because it has another format.
    fn read(&self, answer: &str) -> Result<String, ModelFailure>;
    /// Reads the notes in an answer to [`piece`](Self::piece). By default they are read like a
    /// summary.
    ///
    /// # Errors
    /// A failure if the answer holds no notes.
    fn read_piece(&self, answer: &str) -> Result<String, ModelFailure> {
        self.read(answer)
    }
    /// Merges the notes on all pieces without another question, if they are short enough for that.
    /// By default the model is asked again.
    fn join(&self, notes: &[String]) -> Option<String> {
        let _ = notes;
        None
    }
    /// Asks for less from now on, if that may fix this failure. Returns false if there is nothing
    /// to try, which is the default.
    fn ask_for_less(&mut self, failure: &ModelFailure) -> bool {
        let _ = failure;
        false
    }
    /// The largest size of the summary, in tokens.
    fn budget(&self) -> u64;
    /// Shortens what goes along with the material, such as an earlier summary, by passing each text
    /// through `fit`. This leaves room for the material. By default nothing is shortened.
    fn fit(&mut self, fit: &dyn Fn(&str) -> String) {
        let _ = fit;
    }
}

/// Appends a text between tags to a prompt. A closing tag inside the text is escaped.
pub fn tagged(prompt: &mut String, tag: &str, text: &str) {
    let close = format!("</{tag}");
    // If the material could close its own tag, the rest of it would read as instructions.
    let text = text.replace(&close, &format!("<\\/{tag}"));
    prompt.push_str(&format!("<{tag}>\n{}\n{close}>\n\n", text.trim()));
}

/// A summary that is being written. It holds the state between two rounds of calls: what is still
/// to be summarised, and how small the pieces have to be.
#[derive(Debug)]
pub struct Summariser {
    prompts: Box<dyn Prompts>,
    window: u64,
    /// What is to be summarised: the conversation at first, the notes on its pieces in later
    /// rounds.
    units: Vec<String>,
    halvings: u32,
    rounds: u32,
    /// The last message of the material, if all of it stands in the window of the agent's
    /// conversation.
    through: Option<MessageId>,
    services: Services,
}

impl Summariser {
    /// Starts a summary of these pieces of text, by a model with a window of `window` tokens.
    /// Secrets in what goes along with the material are masked here.
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
            through: None,
            services,
        };
        // In a small window the conversation itself has priority.
        let most = (this.usable() / 6).max(MIN_PIECE);
        let services = this.services.clone();
        // Mask before cutting: half a secret has no shape to recognise it by.
        (this.prompts).fit(&|text| excerpt_within(&mask_secrets(text), most, &services));
        this
    }

    /// Marks that all messages up to `through` stand in the agent's own window. A model that has
    /// read them already can be asked without sending them again.
    #[must_use]
    pub(crate) fn in_window(mut self, through: Option<MessageId>) -> Self {
        self.through = through;
        self
    }

    /// Returns the calls to make now: one that asks for the whole summary, or one per piece that
    /// asks for notes.
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
                .layout(self.prompts.layout())
        };

        // Try the whole in one call first. Packing returns more than one piece if it does not fit.
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
        // The notes have at most a third of the piece, so that each round leaves less to merge.
        let each = (room("") / 3).clamp(64, answer);
        pieces
            .iter()
            .enumerate()
            .map(|(at, material)| request(self.prompts.piece(material, at + 1, of, each), each))
            .collect()
    }

    /// Takes the answers to [`requests`](Self::requests), in the same order. Returns the summary,
    /// or `None` if another round of calls is needed.
    ///
    /// # Errors
    /// The first failure that neither smaller pieces nor a shorter answer fix.
    pub fn answered(
        &mut self,
        answers: Vec<Result<ModelAnswer, ModelFailure>>,
    ) -> Result<Option<String>, ModelFailure> {
        match self.read(answers) {
            Err(failure) if self.prompts.ask_for_less(&failure) => Ok(None),
            result => result,
        }
    }

    fn read(
        &mut self,
        answers: Vec<Result<ModelAnswer, ModelFailure>>,
    ) -> Result<Option<String>, ModelFailure> {
        let single = answers.len() == 1;
        let mut notes = Vec::with_capacity(answers.len());
        for answer in answers {
            match answer {
                Ok(answer) => {
                    let text = self.text_in(&answer)?;
                    notes.push(match single {
                        true => self.prompts.read(&text)?,
                        false => self.prompts.read_piece(&text)?,
                    });
                }
                Err(failure)
                    if failure.kind == FailureKind::TooLong && self.halvings < MAX_HALVINGS =>
                {
                    // The other answers of this round are dropped, since the pieces change.
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
        // The notes are the material of the next round.
        self.units = notes;
        Ok(None)
    }

    fn text_in(&self, answer: &ModelAnswer) -> Result<String, ModelFailure> {
        let prompts = [Some(self.prompts.whole("")), self.prompts.continued()];
        let prompts: Vec<String> = prompts.into_iter().flatten().collect();
        text_in(&answer.text, &self.prompts.system(), &prompts)
    }

    /// Packs the units, in order, into pieces of at most `room` tokens. A unit that is longer is
    /// shortened to an excerpt.
    fn pack(&self, room: u64) -> Vec<String> {
        let mut pieces: Vec<String> = Vec::new();
        let mut used = 0;
        for unit in &self.units {
            let unit = excerpt_within(unit, room, &self.services);
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
