use proptest::prelude::*;

use super::*;

fn lost() -> DriverError {
    DriverError::Lost {
        device: "board".into(),
    }
}

#[test]
fn a_value_is_reached_when_every_promise_up_to_it_is_kept() {
    let line = Timeline::new("t");
    let [one, three, seven] = [1, 3, 7].map(|v| line.promise(v).unwrap());
    seven.keep();
    assert_eq!(line.value(), 0);
    one.keep();
    assert_eq!(line.value(), 1);
    assert!(line.wait(1).is_ok());
    let soon = Duration::from_millis(2);
    for value in 2..=7 {
        let waited = line.wait_timeout(value, soon);
        assert!(matches!(waited, Err(TimelineError::Timeout { .. })));
    }
    three.keep();
    assert_eq!(line.value(), 7);
    assert!(line.wait(5).is_ok());
}

#[test]
fn promises_increase() {
    let line = Timeline::new("t");
    assert!(line.signal(0).is_err());
    line.signal(4).unwrap();
    for value in [0, 3, 4] {
        let error = line.promise(value).unwrap_err();
        let text = format!("timeline t: {value} can't be promised after 4");
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(line.promise_next().unwrap().point().value, 5);
    let line = Timeline::new("t");
    line.signal(u64::MAX).unwrap();
    assert_eq!(line.value(), u64::MAX);
    assert!(line.promise_next().is_err());
    assert!(line.wait(u64::MAX).is_ok());
}

#[test]
fn a_wait_without_a_signaller_fails_at_once() {
    let line = Timeline::new("t");
    assert!(line.wait(0).is_ok());
    let error = line.wait(1).unwrap_err().to_string();
    assert_eq!(
        error,
        "timeline t is at 0 and nothing outstanding signals 1"
    );
    let two = line.promise(2).unwrap();
    assert!(matches!(
        line.wait(3),
        Err(TimelineError::NoSignaller { .. })
    ));
    two.keep();
}

#[test]
fn a_blocked_wait_ends_when_the_last_signaller_goes() {
    for fail in [false, true] {
        let line = Timeline::new("t");
        let promise = line.promise(1).unwrap();
        let waiting = line.clone();
        let waiter = std::thread::spawn(move || waiting.wait(1));
        std::thread::sleep(Duration::from_millis(5));
        let text = if fail {
            promise.fail(lost());
            "timeline t never reaches 1: device board has stopped"
        } else {
            drop(promise);
            "timeline t never reaches 1: the promise of 1 on timeline t was dropped"
        };
        let error = waiter.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_failure_ends_the_timeline_there_and_leaves_what_came_before() {
    let line = Timeline::new("t");
    let [one, two, three] = [1, 2, 3].map(|v| line.promise(v).unwrap());
    three.fail(lost());
    two.fail(DriverError::Input("first in order".into()));
    for value in [2, 3, 4] {
        let error = line.wait(value).unwrap_err().to_string();
        assert!(error.ends_with("first in order"), "{error}");
    }
    let waited = line.wait_timeout(1, Duration::from_millis(1));
    assert!(matches!(waited, Err(TimelineError::Timeout { .. })));
    one.keep();
    assert!(line.wait(1).is_ok());
    line.signal(9).unwrap();
    assert_eq!(line.value(), 1);
}

#[test]
fn the_host_is_found_behind_work() {
    let (a, b) = (Timeline::new("a"), Timeline::new("b"));
    let host = a.promise(1).unwrap();
    let node = Node::new(vec![a.at(1)], None);
    let promise = b.promise(1).unwrap();
    promise.hand_to(&node);
    let next = Node::new(vec![b.at(1)], None);
    let found = next.dependence();
    assert!(found.on_host && found.cycle.is_none());
    host.keep();
    assert!(!next.dependence().on_host);
    // The promise on `b`, held by `node`, now closes a circle through the stream order.
    let last = Node::new(vec![b.at(1)], None);
    let looped = Node::new(vec![], Some(Arc::clone(&last)));
    promise.hand_to(&looped);
    assert!(looped.dependence().cycle.is_some());
    last.finish();
    looped.finish();
    assert!(looped.dependence().cycle.is_none());
    promise.keep();
}

proptest! {
    /// Any order of keeping and failing gives what the definition says.
    #[test]
    fn the_value_is_the_largest_kept_below_all_others(
        steps in prop::collection::vec(1u64..5, 1..12),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8), 12),
    ) {
        let line = Timeline::new("t");
        let mut open: Vec<Promise> = Vec::new();
        let mut at = 0;
        for step in steps {
            at += step;
            open.push(line.promise(at).unwrap());
        }
        let (mut kept, mut barred) = (vec![0], Vec::new());
        let mut seen = 0;
        for (index, action) in order {
            if open.is_empty() {
                break;
            }
            let promise = open.swap_remove(index.index(open.len()));
            let value = promise.point().value;
            if action == 0 {
                barred.push(value);
                promise.fail(lost());
            } else {
                kept.push(value);
                promise.keep();
            }
            let outstanding = open.iter().map(|p| p.point().value);
            let barrier = outstanding.chain(barred.iter().copied()).min().unwrap_or(u64::MAX);
            let expected = kept.iter().copied().filter(|v| *v < barrier).max().unwrap();
            prop_assert_eq!(line.value(), expected);
            prop_assert!(expected >= seen);
            seen = expected;
        }
    }
}
