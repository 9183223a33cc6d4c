//! The commit protocol of `formats/store.md`, explored: every interleaving of two writers, a reader and a collection over one
//! shard (a blob and the record that leads to it), with a crash of each at any point. What is promised holds in each state, and
//! each part of the protocol is needed: without any one of them some interleaving breaks a promise.

use std::collections::HashSet;

/// Parts of the protocol that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// Writers and readers say nothing of themselves.
    Intents,
    /// Writers and readers heed no lists.
    Looking,
    /// A writer takes a blob that is there already as it is.
    Rejuvenation,
    /// What was marked first is removed, whatever happened since.
    SecondMark,
    /// The second mark follows at once.
    Wait,
    /// Blobs go before the records that lead to them.
    Order,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Step {
    Begin,
    Look,
    Blob,
    Check,
    Record,
    /// Has what it wanted, and relies upon it.
    Done,
    /// The reader found its record gone, or about to go: it computes instead.
    Refused,
    Crashed,
    /// As any process after its intent is gone.
    Over,
}

/// A writer or the reader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Process {
    step: Step,
    /// Its intent is in the store.
    intent: bool,
    /// It looked at lists since the one that is there now was published (so its view is that list), and what it saw.
    fresh: bool,
    sees: [bool; 2],
    /// The blob was published after its intent.
    blob_is_younger: bool,
}

impl Process {
    fn acts(&self) -> bool {
        !matches!(self.step, Step::Done | Step::Refused | Step::Crashed | Step::Over)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Gc {
    Idle,
    Marked,
    Listed,
    /// Intents were read; waiting for those.
    Waiting,
    Waited,
    Marked2,
    Removing,
    Crashed,
}

const BLOB: usize = 0;
const RECORD: usize = 1;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    /// Which are there.
    objects: [bool; 2],
    processes: [Process; 3],
    gc: Gc,
    /// What the collection is to remove, and the objects that were published anew since it marked first.
    marked: [bool; 2],
    changed: [bool; 2],
    /// What the published list names.
    list: Option<[bool; 2]>,
    /// Whose intents were read after the list was published.
    waits_for: [bool; 3],
}

const READER: usize = 2;

impl State {
    fn all(objects: [bool; 2]) -> State {
        let process =
            Process { step: Step::Begin, intent: false, fresh: true, sees: [false; 2], blob_is_younger: false };
        State {
            objects,
            processes: [process; 3],
            gc: Gc::Idle,
            marked: [false; 2],
            changed: [false; 2],
            list: None,
            waits_for: [false; 3],
        }
    }

    /// Objects that nothing needs: what a mark finds. An intent keeps the record and what it leads to, and blobs that are
    /// younger than it.
    fn garbage(&self) -> [bool; 2] {
        let live = || self.processes.iter().filter(|process| process.intent);
        let needed = live().count() > 0;
        let young = live().any(|process| process.blob_is_younger);
        let led_to = needed && self.objects[RECORD];
        [self.objects[BLOB] && !led_to && !young, self.objects[RECORD] && !needed]
    }

    fn publish(&mut self, object: usize) {
        self.objects[object] = true;
        self.changed[object] = true;
        if object == BLOB {
            self.processes.iter_mut().for_each(|process| process.blob_is_younger |= process.intent);
        }
    }

    /// The same for all states that differ only in what no step looks at any more, or in which of the writers is which.
    fn normal(mut self) -> State {
        if !matches!(self.gc, Gc::Waiting) {
            self.waits_for = [false; 3];
        }
        if matches!(self.gc, Gc::Idle | Gc::Crashed) {
            (self.marked, self.changed) = ([false; 2], [false; 2]);
        }
        if matches!(self.gc, Gc::Marked2 | Gc::Removing) {
            self.changed = [false; 2];
        }
        for process in &mut self.processes {
            process.fresh |= !matches!(self.gc, Gc::Listed | Gc::Waiting) || !process.acts();
            if !process.acts() {
                process.sees = [false; 2];
            }
        }
        let key = |state: &State, p: usize| (state.processes[p], state.waits_for[p]);
        if key(&self, 0) > key(&self, 1) {
            self.processes.swap(0, 1);
            self.waits_for.swap(0, 1);
        }
        self
    }

    /// What is promised.
    fn broken(&self) -> Option<&'static str> {
        if self.objects == [false, true] {
            return Some("a record leads to a blob that isn't there");
        }
        for process in &self.processes {
            if process.step == Step::Done && self.objects != [true, true] {
                return Some("a process lost what it relies upon");
            }
        }
        None
    }

    fn next(&self, without: Without) -> Vec<State> {
        let mut states = Vec::new();
        for index in 0..3 {
            self.process(index, without, &mut states);
        }
        self.collect(without, &mut states);
        states
    }

    fn process(&self, index: usize, without: Without, states: &mut Vec<State>) {
        let mut go = |change: &dyn Fn(&mut State)| {
            let mut state = *self;
            change(&mut state);
            states.push(state);
        };
        let looks = without != Without::Looking;
        let process = self.processes[index];
        let listed = self.list.unwrap_or_default();
        let next = |step: Step| move |state: &mut State| state.processes[index].step = step;
        match process.step {
            Step::Begin => go(&|state| {
                let process = &mut state.processes[index];
                (process.step, process.intent) = (Step::Look, without != Without::Intents);
            }),
            Step::Look => go(&|state| {
                let process = &mut state.processes[index];
                process.step = if index == READER { Step::Check } else { Step::Blob };
                (process.fresh, process.sees) = (true, listed);
            }),
            Step::Blob if looks && process.sees[BLOB] => go(&next(Step::Look)),
            Step::Blob => go(&|state| {
                let fit = process.blob_is_younger || without == Without::Rejuvenation;
                if !state.objects[BLOB] || !fit {
                    state.publish(BLOB);
                }
                state.processes[index].step = Step::Check;
            }),
            Step::Check if index == READER => {
                let refused = !self.objects[RECORD] || looks && process.sees[RECORD];
                go(&next(if refused { Step::Refused } else { Step::Done }));
            }
            Step::Check if looks && process.sees.contains(&true) || !self.objects[BLOB] => go(&next(Step::Look)),
            Step::Check => go(&next(Step::Record)),
            Step::Record => go(&|state| {
                if !state.objects[RECORD] {
                    state.publish(RECORD);
                }
                state.processes[index].step = Step::Done;
            }),
            // An intent goes when its process ends, or later where that died.
            Step::Done | Step::Refused | Step::Crashed => go(&|state| {
                let process = &mut state.processes[index];
                (process.step, process.intent, process.blob_is_younger) = (Step::Over, false, false);
            }),
            Step::Over => return,
        }
        if process.acts() {
            go(&next(Step::Crashed));
            // What it knows is looked at again every now and then.
            if process.step != Step::Begin {
                go(&|state| (state.processes[index].fresh, state.processes[index].sees) = (true, listed));
            }
        }
    }

    fn collect(&self, without: Without, states: &mut Vec<State>) {
        let mut go = |change: &dyn Fn(&mut State)| {
            let mut state = *self;
            change(&mut state);
            states.push(state);
        };
        match self.gc {
            Gc::Idle => go(&|state| {
                (state.marked, state.changed) = (self.garbage(), [false; 2]);
                state.gc = Gc::Marked;
            }),
            Gc::Marked => go(&|state| {
                state.list = Some(self.marked);
                // Nobody has seen it yet.
                state.processes.iter_mut().for_each(|process| process.fresh = false);
                state.gc = Gc::Listed;
            }),
            Gc::Listed => go(&|state| {
                state.waits_for = self.processes.map(|process| process.intent);
                state.gc = if without == Without::Wait { Gc::Waited } else { Gc::Waiting };
            }),
            // As long as any of them may act on what it knew before.
            Gc::Waiting => {
                let knows = |process: &Process| process.fresh || !process.acts();
                if (0..3).all(|p| !self.waits_for[p] || knows(&self.processes[p])) {
                    go(&|state| state.gc = Gc::Waited);
                }
            }
            Gc::Waited => go(&|state| {
                let again = self.garbage();
                for object in [BLOB, RECORD] {
                    let stays = !again[object] || self.changed[object];
                    state.marked[object] &= !stays || without == Without::SecondMark;
                }
                state.gc = Gc::Marked2;
            }),
            Gc::Marked2 => go(&|state| {
                state.list = Some(self.marked);
                state.gc = Gc::Removing;
            }),
            Gc::Removing => {
                let turns = if without == Without::Order { [BLOB, RECORD] } else { [RECORD, BLOB] };
                match turns.into_iter().find(|object| self.marked[*object]) {
                    Some(object) => go(&|state| {
                        state.objects[object] = false;
                        state.marked[object] = false;
                    }),
                    None => go(&|state| (state.list, state.gc) = (None, Gc::Idle)),
                }
            }
            // Its list counts no more after a while, and the next one begins.
            Gc::Crashed => return go(&|state| (state.list, state.gc) = (None, Gc::Idle)),
        }
        if self.gc != Gc::Idle {
            go(&|state| state.gc = Gc::Crashed);
        }
    }
}

/// The number of states that can be reached, or the first promise that one of them breaks.
fn explore(without: Without) -> Result<usize, &'static str> {
    let starts = [[false, false], [true, false], [true, true]];
    let mut seen: HashSet<State> = starts.into_iter().map(State::all).collect();
    let mut left: Vec<State> = seen.iter().copied().collect();
    while let Some(state) = left.pop() {
        if let Some(broken) = state.broken() {
            return Err(broken);
        }
        left.extend(state.next(without).into_iter().map(State::normal).filter(|next| seen.insert(*next)));
    }
    Ok(seen.len())
}

#[test]
fn no_interleaving_breaks_a_promise() {
    let states = explore(Without::Nothing).unwrap();
    println!("{states} states");
    assert!(states > 100_000, "{states}");
}

#[test]
fn each_part_of_the_protocol_is_needed() {
    for without in
        [Without::Intents, Without::Looking, Without::Rejuvenation, Without::SecondMark, Without::Wait, Without::Order]
    {
        let broken = explore(without);
        println!("without {without:?}: {broken:?}");
        assert!(broken.is_err(), "nothing breaks without {without:?}");
    }
}
