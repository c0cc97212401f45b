//! Sessions in which users state rules, played through ten compactions, to see which rules are still in the window word
//! for word.
//!
//! [`Scenario::of`] writes a session in one of six languages from a seed: the wording of each rule, where in which message
//! it stands, and what is around it. Sentences of the same form stand in code, quotes, logs, tool output and the
//! assistant's own words. These decoys must not become rules. [`Scenario::play`] sends the session to one engine, or to
//! another engine after each compaction, and [`Survival`] counts. The rules of a [`Scenario::of_changes`] are replaced
//! later, and the window must say so after each compaction.

use std::sync::Arc;

use contexture::engines::Engines;
use contexture::session::{AgentWindow, Compact, CompactionReport, Session, TurnOptions};
use serde_json::{Value, json};

use crate::under;

/// The engines that summarise.
pub const ENGINES: [&str; 5] = ["compressor", "lcm", "tiered", "two-layer", "virtual-files"];
/// How many compactions a session goes through.
pub const COMPACTIONS: usize = 10;
const HEADING: &str = "## Rules the user stated. They still hold:";
const WINDOW: u64 = 48_000;

/// A language of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tongue {
    English,
    Chinese,
    German,
    Spanish,
    French,
    Japanese,
}

impl Tongue {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::English,
        Self::Chinese,
        Self::German,
        Self::Spanish,
        Self::French,
        Self::Japanese,
    ];

    /// Rules, with a place for a name.
    fn rules(self) -> [&'static str; 12] {
        match self {
            Self::English => [
                "Never write to {} directly.",
                "Always run the linter before you touch {}.",
                "Only use the helpers in {} for dates.",
                "Do not rename anything in {} unless I ask for it.",
                "From now on every commit message starts with {}.",
                "Make sure that every change to {} has a test.",
                "Please don't add new dependencies to {}.",
                "All functions in {} must return errors instead of panicking.",
                "Ask me before you delete anything under {}.",
                "Whenever you edit {}, update the changelog too.",
                "You must not log the contents of {}.",
                "Avoid abbreviations in {}, and prefer whole words.",
            ],
            Self::Chinese => [
                "永远不要直接写入 {}。",
                "修改 {} 之前必须先运行测试。",
                "日期处理只能用 {} 里的函数。",
                "除非我要求，否则不要重命名 {} 里的任何东西。",
                "从现在起，每条提交信息都以 {} 开头。",
                "确保对 {} 的每次修改都有测试。",
                "请不要给 {} 添加新的依赖。",
                "{} 里的所有函数都必须返回错误。",
                "删除 {} 下的文件之前务必先问我。",
                "每次改 {} 都要更新变更日志。",
                "禁止在日志里输出 {} 的内容。",
                "{} 里尽量避免缩写。",
            ],
            Self::German => [
                "Schreibe niemals direkt in {}.",
                "Führe immer den Linter aus, bevor du {} anfasst.",
                "Verwende für Datumswerte nur die Funktionen aus {}.",
                "Benenne in {} nichts um, es sei denn, ich bitte darum.",
                "Ab jetzt beginnt jede Commit-Nachricht mit {}.",
                "Stelle sicher, dass jede Änderung an {} einen Test hat.",
                "Bitte keine neuen Abhängigkeiten in {}.",
                "Alle Funktionen in {} müssen Fehler zurückgeben.",
                "Frag mich, bevor du etwas unter {} löschst.",
                "Der Inhalt von {} darf nicht ins Log geschrieben werden.",
                "Lösche auf keinen Fall Dateien in {}.",
                "Vermeide Abkürzungen in {}.",
            ],
            Self::Spanish => [
                "Nunca escribas directamente en {}.",
                "Ejecuta siempre el linter antes de tocar {}.",
                "Usa solo las funciones de {} para las fechas.",
                "No cambies nombres en {} a menos que te lo pida.",
                "A partir de ahora cada mensaje de commit empieza con {}.",
                "Asegúrate de que cada cambio en {} tenga una prueba.",
                "Por favor, no añadas dependencias nuevas a {}.",
                "Todas las funciones de {} deben devolver errores.",
                "Pregúntame antes de borrar algo en {}.",
                "No debes registrar el contenido de {}.",
                "Bajo ningún concepto borres los archivos de {}.",
                "Evita las abreviaturas en {}.",
            ],
            Self::French => [
                "N'écris jamais directement dans {}.",
                "Lance toujours le linter avant de toucher à {}.",
                "Utilise uniquement les fonctions de {} pour les dates.",
                "Ne renomme rien dans {} sauf si je le demande.",
                "À partir de maintenant, chaque message de commit commence par {}.",
                "Assure-toi que chaque changement dans {} a un test.",
                "N'ajoute pas de nouvelles dépendances à {}.",
                "Toutes les fonctions de {} doivent renvoyer des erreurs.",
                "Demande-moi avant de supprimer quoi que ce soit dans {}.",
                "Le contenu de {} ne doit pas être journalisé.",
                "Ne supprime en aucun cas les fichiers de {}.",
                "Évite les abréviations dans {}.",
            ],
            Self::Japanese => [
                "{} に直接書き込まないでください。",
                "{} を変更する前に必ずテストを実行してください。",
                "日付の処理には {} の関数だけを使ってください。",
                "私が頼まない限り、{} の名前を変えないで。",
                "今後はコミットメッセージを必ず {} で始めてください。",
                "{} の変更には常にテストを付けること。",
                "{} に新しい依存関係を追加してはいけません。",
                "{} の関数は必ずエラーを返すようにしてください。",
                "{} のファイルを勝手に消さないでください。",
                "{} の内容をログに出すのは禁止です。",
                "{} では絶対に略語を使わないでください。",
                "{} を編集したら、変更履歴も忘れずに更新してください。",
            ],
        }
    }

    /// What a user says besides rules: a request, and a report that has the words of a rule.
    fn talk(self) -> [(&'static str, &'static str); 3] {
        match self {
            Self::English => [
                (
                    "Please look at part {} of the parser.",
                    "The job for {} always fails on Mondays.",
                ),
                (
                    "Can you fix the import in {}?",
                    "I never saw this error before.",
                ),
                ("Next, the report for {}.", "It must be the cache again."),
            ],
            Self::Chinese => [
                ("帮我看一下解析器的 {} 部分。", "{} 的任务总是失败。"),
                ("修一下 {} 的导入好吗？", "这个错误我以前没见过。"),
                ("接下来写 {} 的报告。", "服务不能启动了。"),
            ],
            Self::German => [
                (
                    "Schau dir bitte Teil {} des Parsers an.",
                    "Der Auftrag für {} schlägt immer fehl.",
                ),
                (
                    "Kannst du den Import in {} reparieren?",
                    "Ich habe diesen Fehler nie gesehen.",
                ),
                (
                    "Als Nächstes der Bericht für {}.",
                    "Das liegt wohl wieder am Cache.",
                ),
            ],
            Self::Spanish => [
                (
                    "Mira por favor la parte {} del parser.",
                    "La tarea de {} siempre falla.",
                ),
                (
                    "¿Puedes arreglar el import de {}?",
                    "Yo nunca he visto este error.",
                ),
                ("Ahora el informe de {}.", "No funciona desde ayer."),
            ],
            Self::French => [
                (
                    "Regarde la partie {} du parseur, s'il te plaît.",
                    "La tâche de {} échoue toujours.",
                ),
                (
                    "Tu peux réparer l'import de {} ?",
                    "Je n'ai jamais vu cette erreur.",
                ),
                ("Ensuite, le rapport pour {}.", "Ça n'a jamais marché."),
            ],
            Self::Japanese => [
                (
                    "パーサーの {} の部分を見てもらえますか？",
                    "{} のジョブがいつも失敗します。",
                ),
                (
                    "{} のインポートを直してもらえますか？",
                    "このエラーは初めて見ました。",
                ),
                (
                    "次は {} のレポートです。",
                    "またキャッシュのエラーが出ました。",
                ),
            ],
        }
    }

    /// How a user introduces somebody else's words.
    fn says(self) -> &'static str {
        match self {
            Self::English => "The vendor's mail said:",
            Self::Chinese => "文档里写着：",
            Self::German => "In der Doku steht:",
            Self::Spanish => "El registro dice:",
            Self::French => "Le journal dit :",
            Self::Japanese => "ログにはこうあります：",
        }
    }
}

/// A session in which a user states rules.
pub struct Scenario {
    /// What the client adds before each compaction.
    phases: Vec<Vec<Value>>,
    /// The rules, in the words of the user.
    pub rules: Vec<String>,
    /// Sentences of the same form that nobody stated as a rule.
    pub decoys: Vec<String>,
    /// Rules, each with a later sentence that replaces it and the phase in which that is said.
    changes: Vec<(String, String, usize)>,
}

/// What of a session is in the window at its end.
#[derive(Debug, Default, Clone)]
pub struct Survival {
    /// How many rules were stated.
    pub rules: usize,
    /// How many of them are in the window word for word.
    pub kept: usize,
    /// How many decoys there were.
    pub decoys: usize,
    /// How many of them stand among the rules.
    pub taken: usize,
    /// How many compactions there were.
    pub compactions: usize,
    /// The rules that are lost, the decoys that were taken, and the rules that were not replaced.
    pub faults: Vec<String>,
}

impl std::ops::AddAssign for Survival {
    fn add_assign(&mut self, other: Self) {
        self.rules += other.rules;
        self.kept += other.kept;
        self.decoys += other.decoys;
        self.taken += other.taken;
        self.compactions += other.compactions;
        self.faults.extend(other.faults);
    }
}

impl Survival {
    /// The share of rules that are kept.
    pub fn share(&self) -> f64 {
        self.kept as f64 / self.rules.max(1) as f64
    }

    /// The share of decoys that are taken for rules.
    pub fn taken_share(&self) -> f64 {
        self.taken as f64 / self.decoys.max(1) as f64
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn name(&mut self) -> String {
        const FOLDERS: [&str; 8] = ["src", "lib", "api", "core", "jobs", "web", "infra", "db"];
        const NAMES: [&str; 8] = [
            "ledger", "orders", "auth", "index", "queue", "billing", "search", "mailer",
        ];
        let (folder, name) = (FOLDERS[self.below(8)], NAMES[self.below(8)]);
        format!("{folder}/{name}_{}", self.below(900))
    }
}

impl Scenario {
    /// Writes a session.
    pub fn of(tongue: Tongue, seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ tongue as u64);
        let mut this = Self {
            phases: Vec::new(),
            rules: Vec::new(),
            decoys: Vec::new(),
            changes: Vec::new(),
        };
        // The first message is kept as the task, so the rules begin after it.
        let mut order: Vec<usize> = (0..12).collect();
        for at in (1..12).rev() {
            order.swap(at, random.below(at + 1));
        }
        let mut next = order.into_iter();
        for phase in 0..COMPACTIONS {
            let mut messages = Vec::new();
            for turn in 0..4 {
                let is_ruled = phase < 8 && turn == random.below(2) + 1;
                let rule = next
                    .next()
                    .filter(|_| is_ruled || phase < 6 && turn == 3 && phase % 2 == 0);
                let said = match rule {
                    Some(rule) => this.with_rule(tongue, rule, &mut random),
                    None => this.without_rule(tongue, &mut random),
                };
                this.add_turn(tongue, phase * 4 + turn, said, &mut messages, &mut random);
            }
            this.phases.push(messages);
        }
        this
    }

    /// Writes a session in which later sentences replace rules, one of them that of the first message.
    pub fn of_changes(seed: u64) -> Self {
        const CHANGES: [(&str, &str); 3] = [
            ("Never push to {}.", "You may push to {} now."),
            (
                "Always use tabs for indentation in {}.",
                "From now on use spaces instead of tabs in {}.",
            ),
            (
                "Never edit {}.",
                "Forget what I said about {}, the rule no longer applies.",
            ),
        ];
        let mut random = Random(seed);
        let mut this = Self {
            phases: Vec::new(),
            rules: Vec::new(),
            decoys: Vec::new(),
            changes: Vec::new(),
        };
        let mut said = vec![String::new(); COMPACTIONS * 4];
        let first = random.below(CHANGES.len());
        for (at, (rule, change)) in CHANGES.iter().enumerate() {
            let name = random.name();
            let (rule, change) = (rule.replace("{}", &name), change.replace("{}", &name));
            let earlier = match at == first {
                true => 0,
                false => random.below(said.len() / 2),
            };
            let later = earlier + 1 + random.below(said.len() / 2 - 1);
            said[earlier] += &format!(" {rule}");
            said[later] += &format!(" {change}");
            this.changes.push((rule, change, later / 4));
        }
        for phase in 0..COMPACTIONS {
            let mut messages = Vec::new();
            for (turn, rule) in said.iter().enumerate().skip(phase * 4).take(4) {
                let words = format!("Go on with part {turn}.{rule}");
                this.add_turn(Tongue::English, turn, words, &mut messages, &mut random);
            }
            this.phases.push(messages);
        }
        this
    }

    fn decoy(&mut self, tongue: Tongue, random: &mut Random) -> String {
        let decoy = tongue.rules()[random.below(12)].replace("{}", &random.name());
        self.decoys.push(decoy.clone());
        decoy
    }

    /// A message with a rule: alone, among requests, in a list, in a project file, or beside code and logs with decoys.
    fn with_rule(&mut self, tongue: Tongue, rule: usize, random: &mut Random) -> String {
        let rule = tongue.rules()[rule].replace("{}", &random.name());
        self.rules.push(rule.clone());
        let (request, report) = tongue.talk()[random.below(3)];
        let request = request.replace("{}", &random.name());
        let report = report.replace("{}", &random.name());
        match random.below(7) {
            0 => rule,
            1 => format!("{request} {rule}"),
            2 => format!("{report} {rule} {request}"),
            3 => format!("{request}\n\n- {rule}\n- {report}"),
            4 => {
                let decoy = self.decoy(tongue, random);
                format!("{request}\n\n```python\n# {decoy}\nrun(queue)\n```\n\n{rule}")
            }
            5 => {
                let decoy = self.decoy(tongue, random);
                format!(
                    "{rule}\n\n2026-03-04 10:00:01 INFO start\n2026-03-04 10:00:02 WARN {decoy}\n\n{request}"
                )
            }
            _ => format!(
                "<system-reminder>\nContents of /repo/CLAUDE.md (project instructions):\n\n# Project\n\n- {rule}\n\n</system-reminder>\n{request}"
            ),
        }
    }

    /// A message without a rule, often with a decoy in somebody else's words.
    fn without_rule(&mut self, tongue: Tongue, random: &mut Random) -> String {
        let (request, report) = tongue.talk()[random.below(3)];
        let (request, report) = (
            request.replace("{}", &random.name()),
            report.replace("{}", &random.name()),
        );
        match random.below(5) {
            0 => format!("{request} {report}"),
            1 => format!("{request}\n\n> {}", self.decoy(tongue, random)),
            2 => format!(
                "{}\n\n{}\n\n{request}",
                tongue.says(),
                self.decoy(tongue, random)
            ),
            3 => format!(
                "{request} ({} “{}”)",
                tongue.says(),
                self.decoy(tongue, random)
            ),
            _ => format!("{request}\n\n```\n{}\n```", self.decoy(tongue, random)),
        }
    }

    fn add_turn(
        &mut self,
        tongue: Tongue,
        turn: usize,
        said: String,
        messages: &mut Vec<Value>,
        random: &mut Random,
    ) {
        let mut output = String::new();
        for line in 0..60 {
            let name = random.name();
            output.push_str(&format!(
                "{name}.rs:{}: took {} ms, id={:06x}\n",
                line * 7,
                random.below(900),
                random.below(0xff_ffff)
            ));
        }
        let decoy = self.decoy(tongue, random);
        output.push_str(&format!("README.md: {decoy}\n{decoy}\n"));
        let own = self.decoy(tongue, random);
        messages.extend([
            json!({"role": "user", "content": said}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": format!("c{turn}"), "type": "function",
                "function": {"name": "run", "arguments": format!("{{\"command\": \"check part-{turn}\"}}")}}]}),
            json!({"role": "tool", "tool_call_id": format!("c{turn}"), "content": output}),
            json!({"role": "assistant", "content": format!("Part {turn} is done. The file says: {own}")}),
        ]);
    }

    /// Plays the session, with the next of these engines after each compaction.
    pub fn play(&self, all: &Arc<Engines>, names: &[&str]) -> Survival {
        self.play_as(all, names, false)
    }

    /// Plays it for a client that has nothing but the last window: each compaction is the first of a session that
    /// begins with that window.
    pub fn play_windows(&self, all: &Arc<Engines>, names: &[&str]) -> Survival {
        self.play_as(all, names, true)
    }

    fn play_as(&self, all: &Arc<Engines>, names: &[&str], has_only_window: bool) -> Survival {
        let mut sent = vec![json!({"role": "system", "content": "You are a careful programmer."})];
        let (mut window, mut compactions, mut changes) = (String::new(), 0, Vec::new());
        let mut open: Option<(&str, Session)> = None;
        for (phase, messages) in self.phases.iter().enumerate() {
            sent.extend(messages.iter().cloned());
            let name = names[phase % names.len()];
            let id = match has_only_window {
                true => format!("rules-{phase}"),
                false => "rules".to_owned(),
            };
            if has_only_window || open.as_ref().is_none_or(|(known, _)| *known != name) {
                // A session has one writer, so the old one closes first.
                drop(open.take());
                let agent = AgentWindow::new("gpt-5", WINDOW, WINDOW / 10);
                let session =
                    Session::open(all, None, &id, agent, under(name)).expect("the session opens");
                open = Some((name, session));
            }
            let Some((_, session)) = &mut open else {
                continue;
            };
            let mut asked = sent.clone();
            asked.push(json!({"role": "user", "content": tongue_free(phase)}));
            let body = json!({"model": "gpt-5", "messages": &asked}).to_string();
            let options = TurnOptions::default()
                .compact(Compact::Force)
                .wait_for_model(Some(true));
            let turn = session
                .turn_with(&body, None, &options)
                .expect("the turn runs");
            // Some engines shorten messages before they summarise any.
            let is_smaller = |report: CompactionReport| report.tokens_after < report.tokens_before;
            compactions += usize::from(turn.compaction.is_some_and(is_smaller));
            window = turn.body.into_owned();
            changes.extend(self.changes_lost_in(&window, phase));
            sent = match has_only_window {
                true => messages_of(&window),
                false => asked,
            };
            sent.push(json!({"role": "assistant", "content": "Done."}));
        }
        let mut survival = self.survival(&window, compactions);
        survival.faults.extend(changes);
        survival
    }

    /// Returns the rules that a window shows as if they held, though they were replaced until this phase.
    fn changes_lost_in(&self, window: &str, phase: usize) -> Vec<String> {
        let text = text_of(window);
        let stated = stated_in(&text);
        let changes = self.changes.iter().filter(|(.., until)| *until <= phase);
        let lost = changes.filter(|(rule, change, _)| {
            let place = |words: &str| stated.iter().rposition(|line| line.contains(words));
            let (earlier, later) = (place(&format!("- {rule}")), place(&format!("- {change}")));
            match later {
                None => !text.contains(change.as_str()),
                Some(at) => earlier
                    .is_some_and(|earlier| earlier > at || !stated[at].contains("[replaces: ")),
            }
        });
        let lost =
            lost.map(|(rule, ..)| format!("not replaced after {phase}: {rule}\n{stated:#?}"));
        lost.collect()
    }

    fn survival(&self, window: &str, compactions: usize) -> Survival {
        let text = text_of(window);
        let stated = stated_in(&text);
        let lost = self
            .rules
            .iter()
            .filter(|rule| !text.contains(rule.as_str()));
        let lost: Vec<String> = lost.map(|rule| format!("lost: {rule}")).collect();
        let is_taken = |decoy: &&String| {
            let is_rule = self.rules.contains(decoy);
            !is_rule && stated.iter().any(|line| line.contains(decoy.as_str()))
        };
        let taken: Vec<String> = self
            .decoys
            .iter()
            .filter(is_taken)
            .map(|decoy| format!("taken: {decoy}"))
            .collect();
        Survival {
            rules: self.rules.len(),
            kept: self.rules.len() - lost.len(),
            decoys: self.decoys.len(),
            taken: taken.len(),
            compactions,
            faults: lost.into_iter().chain(taken).collect(),
        }
    }
}

/// The request at which a compaction is made.
fn tongue_free(phase: usize) -> String {
    format!("OK {phase}")
}

/// The messages of a request.
fn messages_of(window: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(window).unwrap_or_default();
    body["messages"].as_array().cloned().unwrap_or_default()
}

/// The texts of the messages of a request.
fn text_of(window: &str) -> String {
    let mut text = String::new();
    messages_of(window)
        .iter()
        .for_each(|message| strings(message, &mut text));
    text
}

/// The lines of the sections of rules.
fn stated_in(text: &str) -> Vec<&str> {
    let sections = text.split(HEADING).skip(1);
    let lines = sections.flat_map(|section| {
        section
            .trim_start()
            .lines()
            .take_while(|line| line.starts_with("- "))
    });
    lines.collect()
}

fn strings(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => {
            into.push_str(text);
            into.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, into)),
        _ => {}
    }
}
