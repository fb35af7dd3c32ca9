//! The operations.

/// Operation numbers: bits 15:0 of the command register.
pub mod op {
    /// Frozen.
    pub const VERSION: u16 = 0x00;
    /// What this Trapline can.
    pub const FEATURES: u16 = 0x01;
    /// For tests of the way in and out.
    pub const ECHO: u16 = 0x02;
    /// Who calls.
    pub const WHOAMI: u16 = 0x03;
    /// Tracing one deeper.
    pub const START: u16 = 0x10;
    /// Tracing one less deep.
    pub const STOP: u16 = 0x11;
    /// Sets the depth.
    pub const SET_DEPTH: u16 = 0x12;
    /// Asks for the depth.
    pub const STATE: u16 = 0x13;
    /// A region of interest begins.
    pub const ROI_BEGIN: u16 = 0x14;
    /// It ends.
    pub const ROI_END: u16 = 0x15;
    /// Only code in, or not in, an address range.
    pub const FILTER_RANGE: u16 = 0x16;
    /// Only this address space.
    pub const SCOPE_ASID: u16 = 0x17;
    /// A named event with values.
    pub const EVENT: u16 = 0x20;
    /// Gives an event's name a number.
    pub const DEFINE: u16 = 0x21;
    /// A marker.
    pub const MARK: u16 = 0x22;
    /// A line of text.
    pub const LOG: u16 = 0x23;
    /// Bytes to the consumers.
    pub const SEND: u16 = 0x24;
    /// Bytes from the host.
    pub const RECV: u16 = 0x25;
    /// The thread's name.
    pub const THREAD_NAME: u16 = 0x26;
    /// Retired instructions.
    pub const ICOUNT: u16 = 0x30;
    /// A clock.
    pub const CLOCK: u16 = 0x31;
    /// One of Trapline's own counters.
    pub const COUNTER: u16 = 0x32;
    /// Consumers report what they have.
    pub const STATS_DUMP: u16 = 0x38;
    /// Consumers forget what they have.
    pub const STATS_RESET: u16 = 0x39;
    /// The number of an analyzer by its name.
    pub const ANALYZER_SELECT: u16 = 0x40;
    /// To an analyzer.
    pub const ANALYZER_CALL: u16 = 0x41;
    /// A symbol that no file knows: JIT code.
    pub const ADD_SYMBOL: u16 = 0x42;
    /// Ends QEMU.
    pub const EXIT: u16 = 0x50;
    /// Ends QEMU with a message.
    pub const ABORT: u16 = 0x51;
    /// Stops in the debugger, if there is one.
    pub const BREAK: u16 = 0x52;
    /// From here on: the analyzer's own.
    pub const USER: u16 = 0x8000;
}

/// Guest memory that an operation reads or writes; the numbers are those of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// None.
    None,
    /// Argument `.0` is the address of a text that ends with a 0 byte; 0 if there is none. See [`crate::NAME_MAX`].
    Name(u8),
    /// Argument `.0` is the address and `.1` the length in bytes of what is read. See [`crate::BUFFER_MAX`].
    In(u8, u8),
    /// The same of what is written.
    Out(u8, u8),
    /// Argument `.0` is the address of 8 bytes that are written with the 64-bit result, in the guest's byte order; 0 if it is
    /// wanted in the result register.
    Word(u8),
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its number.
    pub op: u16,
    /// Its name.
    pub name: &'static str,
    /// Its arguments, in order.
    pub args: &'static str,
    /// What it gives, beside errors.
    pub result: &'static str,
    /// The guest memory that it takes.
    pub buffer: Buffer,
    /// The option `allow=` that lets it; none: it is always allowed.
    pub allow: Option<&'static str>,
}

const fn o(op: u16, name: &'static str, args: &'static str, result: &'static str, buffer: Buffer) -> Operation {
    Operation { op, name, args, result, buffer, allow: None }
}

const fn host(operation: Operation, allow: &'static str) -> Operation {
    Operation { allow: Some(allow), ..operation }
}

/// All of them, by number.
pub const OPERATIONS: &[Operation] = &[
    o(op::VERSION, "VERSION", "", "abi<<16 + minor", Buffer::None),
    o(op::FEATURES, "FEATURES", "word", "bits", Buffer::None),
    o(op::ECHO, "ECHO", "a, b", "a+b", Buffer::None),
    o(op::WHOAMI, "WHOAMI", "", "vCPU index<<1 + user mode", Buffer::None),
    o(op::START, "START", "scope", "depth", Buffer::None),
    o(op::STOP, "STOP", "scope", "depth", Buffer::None),
    o(op::SET_DEPTH, "SET_DEPTH", "scope, n", "old depth", Buffer::None),
    o(op::STATE, "STATE", "scope", "depth", Buffer::None),
    o(op::ROI_BEGIN, "ROI_BEGIN", "id, name", "0", Buffer::Name(1)),
    o(op::ROI_END, "ROI_END", "id, name", "0", Buffer::Name(1)),
    o(op::FILTER_RANGE, "FILTER_RANGE", "lo, hi, in", "0", Buffer::None),
    o(op::SCOPE_ASID, "SCOPE_ASID", "this", "0", Buffer::None),
    o(op::EVENT, "EVENT", "id, a0, a1, a2, a3", "0", Buffer::None),
    o(op::DEFINE, "DEFINE", "name", "id", Buffer::Name(0)),
    o(op::MARK, "MARK", "name, value", "0", Buffer::Name(0)),
    o(op::LOG, "LOG", "ptr, len, level", "0", Buffer::In(0, 1)),
    o(op::SEND, "SEND", "channel, ptr, len", "0", Buffer::In(1, 2)),
    host(o(op::RECV, "RECV", "channel, ptr, capacity", "length", Buffer::Out(1, 2)), "recv"),
    o(op::THREAD_NAME, "THREAD_NAME", "name", "0", Buffer::Name(0)),
    o(op::ICOUNT, "ICOUNT", "what, ptr", "count", Buffer::Word(1)),
    o(op::CLOCK, "CLOCK", "what, ptr", "ns", Buffer::Word(1)),
    o(op::COUNTER, "COUNTER", "what, ptr", "count", Buffer::Word(1)),
    o(op::STATS_DUMP, "STATS_DUMP", "label", "0", Buffer::Name(0)),
    o(op::STATS_RESET, "STATS_RESET", "label", "0", Buffer::Name(0)),
    host(o(op::ANALYZER_SELECT, "ANALYZER_SELECT", "name", "id", Buffer::Name(0)), "select"),
    o(op::ANALYZER_CALL, "ANALYZER_CALL", "id, op, ptr, len", "the analyzer's", Buffer::In(2, 3)),
    o(op::ADD_SYMBOL, "ADD_SYMBOL", "addr, size, name", "0", Buffer::Name(2)),
    host(o(op::EXIT, "EXIT", "code", "does not return", Buffer::None), "exit"),
    host(o(op::ABORT, "ABORT", "message", "does not return", Buffer::Name(0)), "exit"),
    o(op::BREAK, "BREAK", "", "0", Buffer::None),
    o(op::USER, "USER", "six of the analyzer's", "the analyzer's", Buffer::None),
];

impl Operation {
    /// The operation with this number; every number from [`op::USER`] up is that one.
    pub fn of(number: u16) -> Option<&'static Operation> {
        let number = if number >= op::USER { op::USER } else { number };
        OPERATIONS.iter().find(|o| o.op == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_are_found() {
        assert!(OPERATIONS.windows(2).all(|w| w[0].op < w[1].op));
        assert_eq!(Operation::of(0x22).unwrap().name, "MARK");
        assert_eq!(Operation::of(0xffff).unwrap().name, "USER");
        assert_eq!(Operation::of(0x04), None);
        assert_eq!(Operation::of(0x7fff), None);
    }

    #[test]
    fn buffers_are_among_the_arguments() {
        for o in OPERATIONS {
            let args: u8 = if o.args.is_empty() { 0 } else { o.args.split(", ").count() as u8 };
            let last = match o.buffer {
                Buffer::None => continue,
                Buffer::Name(i) | Buffer::Word(i) => i,
                Buffer::In(_, i) | Buffer::Out(_, i) => i,
            };
            assert!(last < args, "{}", o.name);
        }
    }
}
