//! Faults, signals, blocks left in the middle: nothing is lost, nothing is told twice. x86_64.

use trapline_tests::{Isa, Trace, What, guest, same};

fn faults(which: &str) -> trapline_tests::Run {
    guest("x86_faults", Isa::X86_64).run().arg(which)
}

#[test]
fn a_thousand_divisions_by_zero_lose_nothing() {
    let t = faults("divide").counts().trace().code(0);
    for pc in ["divide", "d_nop", "d_sys"] {
        assert_eq!((t.at(pc).insns, t.at(pc).aborted), (1000, 0), "{pc}");
    }
    assert_eq!((t.at("d_div").insns, t.at("d_div").aborted), (0, 1000));
    assert_eq!(t.at("d_after").insns, 0);
}

#[test]
fn a_store_that_faults_and_is_retried_is_one_store() {
    let t = faults("store").values().trace().code(0);
    t.expect("store_guard", "g_after", "A store_guard\nI store_guard\nW 0x60001000 4 =0x55");
}

/// `expect` with the return address's load left out, whose address is the stack's.
trait WithoutStack {
    fn expect_without_stack(&self, from: &str, to: &str, expected: &[&str]);
}

impl WithoutStack for Trace {
    #[track_caller]
    fn expect_without_stack(&self, from: &str, to: &str, expected: &[&str]) {
        let lines: Vec<String> = self.lines(from, to).into_iter().filter(|l| !l.contains(" 0x7f")).collect();
        same(&lines, expected);
    }
}

#[test]
fn a_push_whose_store_faults_has_its_load_reported() {
    let t = faults("push").values().trace().code(0);
    t.expect_without_stack(
        "p_push",
        "p_after",
        &[
            "A p_push",
            "R source 8 =0x1234567890abcdef",
            "I p_push",
            "R source 8 =0x1234567890abcdef",
            "W 0x60001000 8 =0x1234567890abcdef",
        ],
    );
}

#[test]
fn an_illegal_instruction_is_told_before_its_handler_and_what_follows_after() {
    let t = faults("illegal").values().trace().code(0);
    let main = t.story(0);
    let find = |what: &str| main.iter().position(|l| l == what).unwrap_or_else(|| panic!("no '{what}'"));
    let (aborted, signal, handler, add) =
        (find("A illegal"), find("signal 4 illegal skip2"), find("I skip2"), find("I i_add"));
    assert!(aborted < signal && signal < handler && handler < add, "{aborted} {signal} {handler} {add}");
    t.expect_without_stack("illegal", "i_end", &["A illegal", "I i_add", "R x 4 =0x0", "W x 4 =0x1", "I i_add+0x7"]);
}

#[test]
fn fxsave_that_faults_a_hundred_times_retires_never() {
    let t = faults("fxsave").counts().trace().code(0);
    assert_eq!((t.at("fxsave_guard").insns, t.at("fxsave_guard").aborted), (0, 100));
    assert_eq!(t.at("fxsave_guard").stores, 0);
}

#[test]
fn rep_stosb_over_a_guard_page_stores_each_byte_once() {
    let t = faults("rep").values().trace().code(0);
    let lines = t.lines("r_fill", "r_ret");
    // rcx = 0 first: it retires and stores nothing.
    let mut expected = vec!["I r_fill".to_string()];
    // QEMU may leave the block between turns: the stores of a part stand before the line of the retirement.
    let bytes = |r: std::ops::Range<u64>| r.map(|i| format!("W {:#x} 1 =0x77", 0x6000_0ffa + i));
    expected.push("A r_fill".into());
    expected.extend(bytes(0..6));
    expected.push("I r_fill".into());
    expected.extend(bytes(6..20));
    let sorted = |lines: &[String]| {
        let mut stores: Vec<String> = lines.iter().filter(|l| l.starts_with('W')).cloned().collect();
        stores.sort();
        stores
    };
    assert_eq!(sorted(&lines), sorted(&expected));
    let at = |l: &str| lines.iter().position(|x| x == l).expect(l);
    assert!(at("A r_fill") < at("W 0x60001000 1 =0x77"), "the seventh byte comes after the fault");
    assert_eq!((t.at("r_fill").insns, t.at("r_fill").aborted), (2, 1));
}

#[test]
fn a_million_turns_of_rep_movsb_are_one_instruction() {
    for which in ["move", "move-timer"] {
        let t = faults(which).counts().trace().code(0);
        let n = t.at("move");
        assert_eq!((n.insns, n.aborted), (1, 0), "{which}");
        assert_eq!((n.loads, n.stores), (1_000_000, 1_000_000), "{which}");
    }
}

#[test]
fn a_flood_of_signals_over_atomics_and_x87_loses_nothing() {
    let t = faults("flood").counts().trace().code(0);
    assert_ne!(t.finished.out().trim(), "0", "there were signals");
    for pc in ["fl_load", "fl_store", "fl_cas", "fl_jump"] {
        assert_eq!(t.at(pc).insns, 20_000, "{pc}");
        assert_eq!(t.at(pc).aborted, 0, "{pc}");
    }
    let cas = t.at("fl_cas");
    assert_eq!((cas.loads, cas.stores), (20_000, 20_000));
    assert_eq!((t.at("fl_load").load_bytes, t.at("fl_store").store_bytes), (200_000, 200_000));
    returns_to_where_it_was(&faults("flood").only("flood", "fl_end").only("tick", "tick.end").trace());
}

#[test]
fn a_loop_under_timer_signals_is_counted_exactly() {
    let t = faults("spin").only("spin", "s_end").only("tick", "tick.end").trace().code(0);
    assert_eq!(t.between("spin", "s_ret").insns, 2_000_000);
    assert_eq!(t.between("spin", "s_ret").aborted, 0);
    returns_to_where_it_was(&t);
}

/// After each signal comes its handler, and after the handler's end the pc that was interrupted.
fn returns_to_where_it_was(t: &Trace) {
    const RT_SIGRETURN: u64 = 15;
    let (mut interrupted, mut expected, mut signals) = (Vec::new(), None, 0);
    let region = t.symbols.get("spin").min(t.symbols.get("flood"))..t.symbols.get("s_end").max(t.symbols.get("fl_end"));
    for e in &t.events {
        match &e.what {
            What::Other(consumer::Event::Signal { from, to, .. }) => {
                if let Some(pc) = expected.take() {
                    assert_eq!(*from, pc, "a signal right after a handler interrupts where that one did");
                }
                interrupted.push(*from);
                expected = Some(*to);
                signals += 1;
            }
            What::Other(consumer::Event::Syscall { number: RT_SIGRETURN, .. }) => {
                assert_eq!(expected, None, "the handler ran before it returned");
                // Only what lies in a region that is kept can be checked.
                expected = interrupted.pop().filter(|pc| region.contains(pc));
            }
            What::Fetch(_) | What::Aborted(_) => {
                if let Some(pc) = expected.take() {
                    assert_eq!(e.pc, pc, "{:#x} was expected, {:#x} ran", pc, e.pc);
                }
            }
            _ => {}
        }
    }
    assert!(signals > 0 && interrupted.is_empty());
}
