//! The errors of functions that ran in this process, for its callers that are in this process too: C carries code and
//! text only, and `source()` wants the error itself. One is kept while a call to the worker that it came from is open.
use crate::error::Error;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard};

/// The error of a user, which may panic when the last reference to it is dropped.
#[derive(Clone)]
pub struct Source(Option<Arc<dyn StdError + Send + Sync>>);

impl Source {
    pub fn of(failure: Box<dyn StdError + Send + Sync>) -> Self {
        Self(Some(Arc::from(failure)))
    }

    pub fn get(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.as_ref().map(|each| &**each as &(dyn StdError + 'static))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        crate::ffi::drop_guarded(self.0.take());
    }
}

/// The calls to one worker that are open.
struct Open {
    to: String,
    count: usize,
    sources: HashMap<Vec<u8>, Source>, // by what they say
}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<Open>> {
    OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// How many texts are kept for a worker, two an error; then they begin anew.
const MOST_TEXTS: usize = 1 << 16;

/// Stands where a worker is named, for the code of ops and hooks, which no worker offers.
pub const OPS: &str = "";

/// A call that is open: errors of functions of its worker are kept for it.
pub struct Expected(String);

impl Expected {
    pub fn of(to: &str) -> Self {
        let mut open = open();
        match open.iter_mut().find(|each| each.to == to) {
            Some(known) => known.count += 1,
            None => open.push(Open { to: to.to_owned(), count: 1, sources: HashMap::new() }),
        }
        Self(to.to_owned())
    }

    /// Gives a failure its source, if the function ran here. C has put before its text where that was: "call ...: text".
    pub fn find(&self, failure: Error) -> Error {
        let open = open();
        let known = match open.iter().find(|each| each.to == self.0) {
            Some(known) => &known.sources,
            None => return failure,
        };
        let message = failure.message();
        let mut rest = Some(message);
        let mut found = None;
        while let (Some(text), None) = (rest, found) {
            found = known.get(text.as_bytes()).or_else(|| known.get(&ends(text, message)));
            rest = text.split_once(": ").map(|(_, rest)| rest);
        }
        match found.cloned() {
            Some(source) => failure.with_source(source),
            None => failure,
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut open = open();
        if let Some(index) = open.iter().position(|each| each.to == self.0) {
            open[index].count -= 1;
            if open[index].count == 0 {
                let gone = open.swap_remove(index);
                drop(open);
                drop(gone); // what is in it may call back
            }
        }
    }
}

/// Notes what a function of a worker failed with, as C was told.
pub fn keep(worker: &str, message: &str, source: &Source) {
    let mut open = open();
    if let Some(known) = open.iter_mut().find(|each| each.to == worker) {
        // A reference may be open for as long as the process runs.
        let is_full = known.sources.len() >= MOST_TEXTS;
        let older = if is_full { std::mem::take(&mut known.sources) } else { HashMap::new() };
        let mut put = |text: Vec<u8>| known.sources.insert(text, source.clone());
        let replaced = [put(message.into()), put(ends(message, message))];
        drop(open);
        drop((replaced, older)); // they may call back
    }
}

/// The begin of a text and the end of a message, which are there where C has left out the middle.
fn ends(text: &str, message: &str) -> Vec<u8> {
    let (begin, end) = (text.len().min(60), message.len().saturating_sub(200));
    [&text.as_bytes()[..begin], &[0], &message.as_bytes()[end..]].concat()
}
