//! The list of sessions on the status page, and the sums over all of them.
//!
//! Reading all sessions takes a moment if there are many, and each open page asks again every few
//! seconds. So what was read is shared by all viewers, see [`SessionLists`]. A [`SessionList`]
//! holds what one viewer may see: a tenant its own sessions, and the owner all of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use contexture::session::{Delivered, Record};
use serde::Serialize;
use tokio::sync::Mutex;

use super::{PageError, TITLE, failed};
use crate::account::{HourSums, SessionTotals, Sums};
use crate::{Shared, account, lineage};

/// For how many times as long as the reading took its result is shared. However many pages are
/// open, reading the list takes at most this part of one core.
const SHARED_FOR: u32 = 20;

/// What identifies a session for a person.
#[derive(Debug, Serialize)]
pub(super) struct SessionInfo {
    id: String,
    /// The title that a user gave it, or else the first words of its user. None if neither is known.
    title: Option<String>,
    /// Whether a user gave it the title.
    is_renamed: bool,
    project: Option<String>,
    /// The agent and the model of the last turn. Empty if the session has none.
    agent: String,
    model: String,
    engine: String,
    messages: u64,
    /// The session that this one may continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<String>,
    /// The time of the last turn. 0 if the session has none.
    at_ms: u64,
}

impl SessionInfo {
    pub(super) fn new(
        shared: &Shared,
        delivered: Delivered,
        totals: &SessionTotals,
        given: Option<String>,
        follows: Option<String>,
    ) -> Self {
        let subject = totals.subject.clone();
        let subject = subject.or_else(|| shared.subjects.of(&delivered.session));
        let subject = subject.unwrap_or_default();
        let given = given.filter(|title| !title.is_empty());
        Self {
            id: delivered.session,
            is_renamed: given.is_some(),
            title: given.or(subject.title),
            project: subject.project,
            agent: totals.agent.clone(),
            model: totals.model.clone(),
            engine: delivered.engine,
            messages: delivered.messages,
            follows,
            at_ms: totals.at_ms,
        }
    }
}

/// A session in the list.
#[derive(Debug, Serialize)]
pub(super) struct SessionRow {
    #[serde(flatten)]
    info: SessionInfo,
    #[serde(flatten)]
    sums: Sums,
    /// What is searched, in lower case.
    #[serde(skip)]
    text: String,
}

impl SessionRow {
    fn new(info: SessionInfo, sums: Sums) -> Self {
        let (title, project) = (info.title.as_deref(), info.project.as_deref());
        let texts = [
            title.unwrap_or_default(),
            &info.id,
            &info.agent,
            &info.model,
            project.unwrap_or_default(),
            &info.engine,
        ];
        let text = texts.join(" ").to_lowercase();
        Self { info, sums, text }
    }

    /// The value of a column by which lists are sorted. Texts are compared without case. A column
    /// that is not known is the time of the last turn.
    fn key(&self, column: &str) -> (i64, String) {
        let info = &self.info;
        let text = match column {
            "title" => info.title.as_ref().unwrap_or(&info.id),
            "agent" => &info.agent,
            "model" => &info.model,
            "project" => info.project.as_ref().map_or("", |project| project),
            _ => {
                let figure = self.sums.figure(column);
                return (figure.unwrap_or(info.at_ms.cast_signed()), String::new());
            }
        };
        (0, text.to_lowercase())
    }
}

/// Which part of a list is asked for.
#[derive(Debug, Default)]
pub(super) struct ListQuery {
    /// Words that a session has in its title, id, agent, model, project or engine. Empty for all.
    pub(super) search: String,
    /// The agent of the last turn. Empty for any.
    pub(super) agent: String,
    /// The column by which the list is sorted. Empty for the time of the last turn.
    pub(super) sort: String,
    pub(super) is_ascending: bool,
    /// The most sessions of the answer. None for all.
    pub(super) limit: Option<usize>,
}

/// The sessions that one viewer may see, with the sums over them.
#[derive(Debug, Default)]
pub(super) struct SessionList {
    rows: Vec<Arc<SessionRow>>,
    pub(super) totals: Sums,
    hours: BTreeMap<u64, Sums>,
    pub(super) unpriced_models: BTreeSet<String>,
    agents: BTreeSet<String>,
}

/// The part of a list that was asked for.
#[derive(Serialize)]
pub(super) struct ListPart<'l> {
    /// How many sessions there are, and how many of them match.
    all: usize,
    matching: usize,
    /// The agents of all sessions.
    agents: &'l BTreeSet<String>,
    sessions: Vec<&'l SessionRow>,
}

impl SessionList {
    fn add(&mut self, row: &Arc<SessionRow>, totals: &SessionTotals) {
        self.totals.add(&totals.sums);
        for HourSums { hour, sums } in &totals.hours {
            self.hours.entry(*hour).or_default().add(sums);
        }
        let unpriced = totals.unpriced_models.iter().cloned();
        self.unpriced_models.extend(unpriced);
        if !totals.agent.is_empty() {
            self.agents.insert(totals.agent.clone());
        }
        self.rows.push(Arc::clone(row));
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The hours that had turns, oldest first.
    pub(super) fn hours(&self) -> Vec<HourSums> {
        let hours = self.hours.iter();
        hours
            .map(|(hour, sums)| HourSums {
                hour: *hour,
                sums: *sums,
            })
            .collect()
    }

    pub(super) fn part(&self, query: &ListQuery) -> ListPart<'_> {
        let search = query.search.to_lowercase();
        let words: Vec<&str> = search.split_whitespace().collect();
        let matches = |row: &&SessionRow| {
            words.iter().all(|word| row.text.contains(word))
                && (query.agent.is_empty() || row.info.agent == query.agent)
        };
        let rows = self.rows.iter().map(|row| &**row);
        let mut sessions: Vec<&SessionRow> = rows.filter(matches).collect();
        match query.is_ascending {
            true => sessions.sort_by_cached_key(|row| row.key(&query.sort)),
            false => sessions.sort_by_cached_key(|row| Reverse(row.key(&query.sort))),
        }
        let matching = sessions.len();
        sessions.truncate(query.limit.unwrap_or(usize::MAX));
        ListPart {
            all: self.rows.len(),
            matching,
            agents: &self.agents,
            sessions,
        }
    }
}

/// The lists of all viewers, as of one moment.
#[derive(Debug, Default)]
pub(super) struct AllLists {
    of_owner: SessionList,
    /// By tenant. Under none are the sessions of nobody in particular.
    of_tenants: HashMap<Option<String>, SessionList>,
    /// What those see who have no session.
    none: SessionList,
}

impl AllLists {
    /// What a tenant may see, or the owner of the home directory.
    pub(super) fn of(&self, tenant: &Option<String>, is_owner: bool) -> &SessionList {
        match is_owner {
            true => &self.of_owner,
            false => self.of_tenants.get(tenant).unwrap_or(&self.none),
        }
    }

    /// Reads all sessions. Totals that cannot be parsed count as none.
    fn read(shared: &Shared) -> Result<Self, PageError> {
        let record = shared.host.record();
        let mut tenants = record.tenants().map_err(failed)?;
        let mut totals = kept(record, account::TOTALS)?;
        let mut titles = kept(record, TITLE)?;
        let mut follows = lineage::follows(record, None).map_err(failed)?;
        let mut lists = Self::default();
        for delivered in record.all_delivered().map_err(failed)? {
            let id = delivered.session.clone();
            let totals = SessionTotals::of_text(totals.remove(&id).as_deref());
            let (given, follows) = (titles.remove(&id), follows.remove(&id));
            let info = SessionInfo::new(shared, delivered, &totals, given, follows);
            let row = Arc::new(SessionRow::new(info, totals.sums));
            lists.of_owner.add(&row, &totals);
            let of_tenant = lists.of_tenants.entry(tenants.remove(&id));
            of_tenant.or_default().add(&row, &totals);
        }
        Ok(lists)
    }
}

/// The texts that are stored under a name, by session.
fn kept(record: &Record, name: &str) -> Result<HashMap<String, String>, PageError> {
    let kept = record.kept_as(name, None).map_err(failed)?;
    Ok(kept.into_iter().collect())
}

/// The lists that were read last. They are shared by all viewers for a time that depends on how
/// long it took to read them. In a store with few sessions that is a few milliseconds.
#[derive(Debug, Default)]
pub(crate) struct SessionLists(Mutex<Option<(Instant, Arc<AllLists>)>>);

impl SessionLists {
    /// The lists, which may be read anew. Others who ask meanwhile wait for the same lists, and
    /// take no thread for that.
    pub(super) async fn current(&self, shared: &Arc<Shared>) -> Result<Arc<AllLists>, PageError> {
        let mut last = self.0.lock().await;
        if let Some((until, lists)) = &*last
            && Instant::now() < *until
        {
            return Ok(Arc::clone(lists));
        }
        let own = Arc::clone(shared);
        let read = move || {
            let began = Instant::now();
            AllLists::read(&own).map(|lists| (began.elapsed(), lists))
        };
        let read = shared.work.run(read).await;
        let (took, lists): (Duration, _) = read.map_err(|failure| failed(failure.detail))??;
        let lists = Arc::new(lists);
        *last = Some((Instant::now() + took * SHARED_FOR, Arc::clone(&lists)));
        Ok(lists)
    }

    /// Has the lists read anew for the next viewer, because somebody changed a session on the page.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}
