//! Random walks: an agent and a hand write, delete, rename; processes end and begin; sessions go back. A model that knows
//! whole trees says what has to be there.

use proptest::prelude::*;

use super::*;

/// Names that collide: files, folders, and files in folders.
const NAMES: [&str; 6] = ["a", "b", "d", "d/x", "d/y", "e/f/z"];

#[derive(Clone, Debug)]
enum Act {
    Write(usize, u8),
    Remove(usize),
    Rename(usize, usize),
    Folder(usize),
    Mode(usize, bool),
}

#[derive(Clone, Debug)]
enum Step {
    Prompt,
    Edit(usize, u8),
    Command(Vec<Act>),
    Hand(Act),
    Restart,
    Rewind { to: usize, what: RewindWhat, force: bool },
}

fn act() -> impl Strategy<Value = Act> {
    let name = 0..NAMES.len();
    prop_oneof![
        4 => (name.clone(), 0..4_u8).prop_map(|(name, text)| Act::Write(name, text)),
        2 => name.clone().prop_map(Act::Remove),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Act::Rename(from, to)),
        1 => name.clone().prop_map(Act::Folder),
        1 => (name, any::<bool>()).prop_map(|(name, executable)| Act::Mode(name, executable)),
    ]
}

fn step(hands: bool) -> impl Strategy<Value = Step> {
    let what = prop_oneof![Just(RewindWhat::Conversation), Just(RewindWhat::Files), Just(RewindWhat::Both)];
    prop_oneof![
        3 => Just(Step::Prompt),
        4 => (0..NAMES.len(), 0..4_u8).prop_map(|(name, text)| Step::Edit(name, text)),
        4 => prop::collection::vec(act(), 1..4).prop_map(Step::Command),
        (if hands { 3 } else { 0 }) => act().prop_map(Step::Hand),
        1 => Just(Step::Restart),
        3 => (any::<usize>(), what, any::<bool>()).prop_map(|(to, what, force)| Step::Rewind { to, what, force }),
    ]
}

/// Does it as a program would, errors included: what can't be done is not done.
fn perform(work: &Path, act: &Act) {
    let at = |name: &usize| work.join(NAMES[*name]);
    match act {
        Act::Write(name, text) => {
            let path = at(name);
            let _ = fs::create_dir_all(path.parent().unwrap());
            let _ = fs::write(path, format!("text {text}"));
        }
        Act::Remove(name) => {
            let _ = fs::remove_file(at(name)).or_else(|_| fs::remove_dir_all(at(name)));
        }
        Act::Rename(from, to) => {
            let _ = fs::rename(at(from), at(to));
        }
        Act::Folder(name) => {
            let _ = fs::create_dir_all(at(name));
        }
        Act::Mode(name, executable) => {
            if fs::metadata(at(name)).is_ok_and(|meta| meta.is_file()) {
                let mode = if *executable { 0o755 } else { 0o644 };
                fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

/// Whole trees, before and after each thing that the agent did.
#[derive(Default)]
struct Model {
    /// Per prompt: how much the agent had done before it.
    prompts: Vec<usize>,
    done: Vec<(Tree, Tree, Cause)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Cause {
    Call,
    Rewind,
}

impl Model {
    /// What has to be there after going back to the prompt `at`, and the paths that are not only the agent's.
    fn expect(&self, at: usize, now: &Tree) -> (Tree, Vec<PathBuf>) {
        let since = &self.done[self.prompts[at]..];
        // First before and last after of each path that the agent changed.
        let mut paths: BTreeMap<&PathBuf, (Option<&Thing>, Option<&Thing>, bool)> = BTreeMap::new();
        for (before, after, cause) in since {
            for path in before.keys().chain(after.keys().filter(|path| !before.contains_key(*path))) {
                let (old, new) = (before.get(path), after.get(path));
                if old == new {
                    continue;
                }
                match paths.get_mut(path) {
                    Some((_, last, strange)) => {
                        *strange |= *cause == Cause::Call && *last != old;
                        *last = new;
                    }
                    None => {
                        paths.insert(path, (old, new, false));
                    }
                }
            }
        }
        let mut expected = now.clone();
        let mut conflicts = Vec::new();
        for (path, (first, last, strange)) in &paths {
            let is = now.get(*path);
            if is == *first {
                continue;
            }
            if is != *last || *strange {
                conflicts.push((*path).clone());
            }
            match first {
                Some(thing) => expected.insert((*path).clone(), (*thing).clone()),
                None => expected.remove(*path),
            };
        }
        // Folders of what is there are there, and those that the agent made stay where somebody has something in them.
        let there: Vec<PathBuf> = expected.keys().cloned().collect();
        for path in there {
            for folder in path.ancestors().skip(1).take_while(|folder| now_root(now, folder)) {
                expected.entry(folder.to_owned()).or_insert(Thing::Folder);
            }
        }
        (expected, conflicts)
    }
}

/// Whether it is a folder below the workspace rather than the workspace itself.
fn now_root(_: &Tree, folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name != "work")
}

fn walk(steps: &[Step]) {
    let house = House::new();
    for name in ["a", "d/x"] {
        fs::create_dir_all(house.work().join(name).parent().unwrap()).unwrap();
        fs::write(house.work().join(name), "at first").unwrap();
    }
    let mut desk = house.begin();
    let mut model = Model::default();
    let prompt = |desk: &Desk, model: &mut Model| {
        desk.prompt("prompt");
        desk.answer("answer");
        model.prompts.push(model.done.len());
    };
    prompt(&desk, &mut model);
    for step in steps {
        let before = tree(&house.work());
        match step {
            Step::Prompt => prompt(&desk, &mut model),
            Step::Edit(name, text) => {
                let write = |work: &Path| perform(work, &Act::Write(*name, *text));
                house.call(&desk, "write_file", Some(&[NAMES[*name]]), write);
                model.done.push((before, tree(&house.work()), Cause::Call));
            }
            Step::Command(acts) => {
                house.shell(&desk, |work| acts.iter().for_each(|act| perform(work, act)));
                model.done.push((before, tree(&house.work()), Cause::Call));
            }
            Step::Hand(act) => perform(&house.work(), act),
            Step::Restart => {
                drop(desk);
                desk = match house.open() {
                    Ok(desk) => desk,
                    // Everything was taken back: there is nothing to go on with.
                    Err(RecordError::Empty(_) | RecordError::Unknown(_)) => return,
                    Err(error) => panic!("{error}"),
                };
            }
            Step::Rewind { to, what, force } => {
                let at = to % model.prompts.len();
                let (expected, conflicts) = model.expect(at, &before);
                let outcome = house.rewind(&desk, &(at + 1).to_string(), *what, *force);
                let now = tree(&house.work());
                match outcome {
                    RewindOutcome::Conflicts(found) => {
                        let mut found: Vec<PathBuf> = found.into_iter().map(|found| found.path.into()).collect();
                        found.sort();
                        assert!(!force && *what != RewindWhat::Conversation);
                        assert_eq!((found, now), (conflicts, before));
                        continue;
                    }
                    RewindOutcome::Done(rewound) => {
                        if *what == RewindWhat::Conversation {
                            assert_eq!(now, before);
                        } else {
                            assert!(*force || conflicts.is_empty(), "{conflicts:?}");
                            // A hand's files in a folder that had to go keep it there, and are named.
                            if rewound.left.is_empty() {
                                assert_eq!(now, expected, "{step:?}");
                            } else {
                                assert!(*force, "{:?}", rewound.left);
                            }
                            model.done.push((before, now, Cause::Rewind));
                        }
                    }
                    other => panic!("{other:?}"),
                }
                if *what != RewindWhat::Files {
                    model.prompts.truncate(at);
                }
                assert_eq!(desk.prompts().len(), model.prompts.len());
                if model.prompts.is_empty() {
                    prompt(&desk, &mut model);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn an_agent_alone_is_taken_back_to_the_letter(steps in prop::collection::vec(step(false), 1..14)) {
        walk(&steps);
    }

    #[test]
    fn what_a_hand_wrote_is_never_taken_back_by_the_way(steps in prop::collection::vec(step(true), 1..18)) {
        walk(&steps);
    }
}
