"""The native driver: the function that every worker thread runs for a step, as LLVM IR text.

A step is a table of phases. Per phase every thread takes chunks of its entries' work from atomic counters until none
are left, then waits at a barrier that spins briefly and sleeps afterwards. The last one to arrive decides for all
whether the step goes on: its decision is the lowest bit of the barrier's number, which nobody changes before everyone
has read it, so that a cancelled step leaves no thread behind. Layout of the tables: `ControlBlock` and `Entry`. Next
module: `runtime.py`.
"""

from __future__ import annotations

from gml.backends.cpu.target import host_arch

#: bytes of a cache line; words that different threads write are on lines of their own
LINE = 64
WORD = 8


class ControlBlock:
    """Word indices of the control block (i64 words)."""

    STEP = 0  # number of the step; workers wait for it to change
    ARRIVED = 8  # threads at the barrier
    GENERATION = 16  # number of the barrier times 2, plus 1 when the step ends there; threads wait for it to change
    SLEEPERS = 24  # threads that sleep on STEP or GENERATION
    STOP = 32  # workers leave
    N_THREADS = 40
    SPINS = 41  # pauses before a waiting thread sleeps
    PHASES = 42  # address of the phase ends: entry numbers, one i64 per phase
    N_PHASES = 43
    ENTRIES = 44  # address of the entries
    SIZES = 45  # address of the run-time sizes
    CANCEL = 46  # address of a word that is set from outside: end the step at the next barrier
    TIMES = 47  # 0, or address of clock readings, [1 + phases, threads, 2] i64: work done, barrier passed; row 0: start
    SCRATCH = 48  # address of the first thread's private memory
    SCRATCH_STRIDE = 49
    WAIT_KIND = 50  # how threads sleep: one of the WAIT_ numbers below
    WAIT = 51  # address of the function that sleeps
    WAKE = 52  # address of the function that wakes
    FUTEX = 53  # number of the futex system call
    N_WORDS = 64


#: kinds of waiting: nap for a moment and look again (usleep), Linux futex, WaitOnAddress, os_sync_wait_on_address
WAIT_NAP, WAIT_FUTEX, WAIT_WINDOWS, WAIT_MACOS = range(4)


class Entry:
    """Word indices of an entry: one kernel and its work. The counter has a cache line of its own."""

    KERNEL = 0
    ARGS = 1
    N_CHUNKS = 2
    GRAIN = 3
    COUNTER = 8
    N_WORDS = 16


def driver_text() -> str:
    """The module's text: `gml_run(control)` for the caller's thread, `gml_worker(control, thread, seen)` for the
    others, `gml_pause(n)` to find out how long a pause is.
    """
    pause = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}.get(
        host_arch(), ""
    )
    declare = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}
    c = ControlBlock
    text = _TEXT
    for name, word in {
        "STEP": c.STEP, "ARRIVED": c.ARRIVED, "GENERATION": c.GENERATION, "SLEEPERS": c.SLEEPERS, "CANCEL": c.CANCEL,
        "STOP": c.STOP, "N_THREADS": c.N_THREADS, "SPINS": c.SPINS, "PHASES": c.PHASES,
        "N_PHASES": c.N_PHASES, "ENTRIES": c.ENTRIES, "SIZES": c.SIZES, "SCRATCH": c.SCRATCH,
        "STRIDE": c.SCRATCH_STRIDE, "TIMES": c.TIMES,
        "WAIT_KIND": c.WAIT_KIND, "WAITER": c.WAIT, "WAKER": c.WAKE, "FUTEX": c.FUTEX, "ENTRY_WORDS": Entry.N_WORDS,
        "COUNTER": Entry.COUNTER,
    }.items():  # fmt: skip
        text = text.replace(f"${name}$", str(word))
    # a counter that user code may read: cycles at a constant rate
    clock = 'call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()'
    if host_arch() != "aarch64":
        clock = "call i64 @llvm.readcyclecounter()"
        text += "\ndeclare i64 @llvm.readcyclecounter()\n"
    return text.replace("$PAUSE$", pause).replace("$CLOCK$", clock) + declare.get(host_arch(), "") + "\n"


_TEXT = """
; wait until the word at %address is no longer %seen: spin, then sleep
define internal void @gml_wait(ptr %control, ptr %address, i64 %seen) {
entry:
  %old = alloca i64
  %spins_at = getelementptr i64, ptr %control, i64 $SPINS$
  %spins = load i64, ptr %spins_at
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %n1, %again ]
  %now = load atomic i64, ptr %address seq_cst, align 8
  %changed = icmp ne i64 %now, %seen
  br i1 %changed, label %done, label %more
more:
  %tired = icmp sge i64 %n, %spins
  br i1 %tired, label %sleep, label %again
again:
  $PAUSE$
  %n1 = add i64 %n, 1
  br label %spin
sleep:
  %sleepers = getelementptr i64, ptr %control, i64 $SLEEPERS$
  %s0 = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %kind_at = getelementptr i64, ptr %control, i64 $WAIT_KIND$
  %kind = load i64, ptr %kind_at
  %waiter_at = getelementptr i64, ptr %control, i64 $WAITER$
  %waiter = load ptr, ptr %waiter_at
  br label %check
check:
  %nap = phi i32 [ 20, %sleep ], [ %nap, %futex ], [ %nap, %windows ], [ %nap, %macos ], [ %longer, %doze ]
  %value = load atomic i64, ptr %address seq_cst, align 8
  %awake = icmp ne i64 %value, %seen
  br i1 %awake, label %leave, label %choose
choose:
  switch i64 %kind, label %doze [ i64 1, label %futex
                                  i64 2, label %windows
                                  i64 3, label %macos ]
futex:
  %number_at = getelementptr i64, ptr %control, i64 $FUTEX$
  %number = load i64, ptr %number_at
  %low = and i64 %seen, 4294967295
  ; FUTEX_WAIT_PRIVATE = 128: sleeps only while the low word is still what was seen
  %r1 = call i64 %waiter(i64 %number, ptr %address, i64 128, i64 %low, ptr null, ptr null, i64 0)
  br label %check
windows:
  store i64 %seen, ptr %old
  %r2 = call i32 %waiter(ptr %address, ptr %old, i64 8, i32 -1)
  br label %check
macos:
  %r3 = call i32 %waiter(ptr %address, i64 %seen, i64 8, i32 0)
  br label %check
doze:
  ; naps of 20 to 1000 microseconds, the longer the wait the longer they get
  %r4 = call i32 %waiter(i32 %nap)
  %twice = mul i32 %nap, 2
  %long = icmp ugt i32 %twice, 1000
  %longer = select i1 %long, i32 1000, i32 %twice
  br label %check
leave:
  %s1 = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %done
done:
  ret void
}

; wake whoever sleeps on the word at %address, after it was changed
define internal void @gml_wake(ptr %control, ptr %address) {
entry:
  %sleepers_at = getelementptr i64, ptr %control, i64 $SLEEPERS$
  %sleepers = load atomic i64, ptr %sleepers_at seq_cst, align 8
  %none = icmp eq i64 %sleepers, 0
  br i1 %none, label %done, label %some
some:
  %kind_at = getelementptr i64, ptr %control, i64 $WAIT_KIND$
  %kind = load i64, ptr %kind_at
  %waker_at = getelementptr i64, ptr %control, i64 $WAKER$
  %waker = load ptr, ptr %waker_at
  switch i64 %kind, label %done [ i64 1, label %futex
                                  i64 2, label %windows
                                  i64 3, label %macos ]
futex:
  %waiter_at = getelementptr i64, ptr %control, i64 $WAITER$
  %waiter = load ptr, ptr %waiter_at
  %number_at = getelementptr i64, ptr %control, i64 $FUTEX$
  %number = load i64, ptr %number_at
  ; FUTEX_WAKE_PRIVATE = 129
  %r1 = call i64 %waiter(i64 %number, ptr %address, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  br label %done
windows:
  call void %waker(ptr %address)
  br label %done
macos:
  %r2 = call i32 %waker(ptr %address, i64 8, i32 0)
  br label %done
done:
  ret void
}

; all threads meet; the result says whether the step goes on
define internal i1 @gml_barrier(ptr %control, i64 %threads) {
entry:
  %generation_at = getelementptr i64, ptr %control, i64 $GENERATION$
  %generation = load atomic i64, ptr %generation_at seq_cst, align 8
  %arrived_at = getelementptr i64, ptr %control, i64 $ARRIVED$
  %arrived = atomicrmw add ptr %arrived_at, i64 1 seq_cst
  %last_number = sub i64 %threads, 1
  %last = icmp eq i64 %arrived, %last_number
  br i1 %last, label %open, label %wait
open:
  store atomic i64 0, ptr %arrived_at seq_cst, align 8
  %cancel_at = getelementptr i64, ptr %control, i64 $CANCEL$
  %cancel_word = load ptr, ptr %cancel_at
  %cancel = load atomic i64, ptr %cancel_word seq_cst, align 8
  %cancelled = icmp ne i64 %cancel, 0
  %ends = zext i1 %cancelled to i64
  %even = and i64 %generation, -2
  %number = add i64 %even, 2
  %next = or i64 %number, %ends
  store atomic i64 %next, ptr %generation_at seq_cst, align 8
  call void @gml_wake(ptr %control, ptr %generation_at)
  br label %done
wait:
  call void @gml_wait(ptr %control, ptr %generation_at, i64 %generation)
  br label %done
done:
  ; the next barrier needs this thread, so the number is still that of this one
  %reached = load atomic i64, ptr %generation_at seq_cst, align 8
  %bit = and i64 %reached, 1
  %go = icmp eq i64 %bit, 0
  ret i1 %go
}

; all phases, as this thread; the result says whether the step came to its end
define internal i1 @gml_step(ptr %control, i64 %thread) {
entry:
  %threads_at = getelementptr i64, ptr %control, i64 $N_THREADS$
  %threads = load i64, ptr %threads_at
  %phases_at = getelementptr i64, ptr %control, i64 $PHASES$
  %phases = load ptr, ptr %phases_at
  %n_phases_at = getelementptr i64, ptr %control, i64 $N_PHASES$
  %n_phases = load i64, ptr %n_phases_at
  %entries_at = getelementptr i64, ptr %control, i64 $ENTRIES$
  %entries = load ptr, ptr %entries_at
  %sizes_at = getelementptr i64, ptr %control, i64 $SIZES$
  %sizes = load ptr, ptr %sizes_at
  %scratch_at = getelementptr i64, ptr %control, i64 $SCRATCH$
  %scratch_base = load ptr, ptr %scratch_at
  %stride_at = getelementptr i64, ptr %control, i64 $STRIDE$
  %stride = load i64, ptr %stride_at
  %mine = mul i64 %stride, %thread
  %scratch = getelementptr i8, ptr %scratch_base, i64 %mine
  %times_at = getelementptr i64, ptr %control, i64 $TIMES$
  %times = load ptr, ptr %times_at
  %timed = icmp ne ptr %times, null
  br i1 %timed, label %start_timed, label %start
start_timed:
  %first_pair = mul i64 %thread, 2
  %start_word = add i64 %first_pair, 1
  %start_at = getelementptr i64, ptr %times, i64 %start_word
  %started = $CLOCK$
  store i64 %started, ptr %start_at
  br label %start
start:
  br label %phase
phase:
  %p = phi i64 [ 0, %start ], [ %p1, %next_phase ]
  %first = phi i64 [ 0, %start ], [ %stop, %next_phase ]
  %any = icmp slt i64 %p, %n_phases
  br i1 %any, label %begin_phase, label %done
begin_phase:
  %stop_at = getelementptr i64, ptr %phases, i64 %p
  %stop = load i64, ptr %stop_at
  br label %item
item:
  %e = phi i64 [ %first, %begin_phase ], [ %e1, %next_item ]
  %more = icmp slt i64 %e, %stop
  br i1 %more, label %work, label %meet
work:
  %row_word = mul i64 %e, $ENTRY_WORDS$
  %row = getelementptr i64, ptr %entries, i64 %row_word
  %kernel = load ptr, ptr %row
  %args_at = getelementptr i64, ptr %row, i64 1
  %args = load ptr, ptr %args_at
  %n_at = getelementptr i64, ptr %row, i64 2
  %n = load i64, ptr %n_at
  %grain_at = getelementptr i64, ptr %row, i64 3
  %grain = load i64, ptr %grain_at
  %counter = getelementptr i64, ptr %row, i64 $COUNTER$
  br label %take
take:
  ; a look first: a counter that has run out is not written again
  %seen = load atomic i64, ptr %counter monotonic, align 8
  %left = icmp slt i64 %seen, %n
  br i1 %left, label %claim, label %next_item
claim:
  %from = atomicrmw add ptr %counter, i64 %grain monotonic
  %ours = icmp slt i64 %from, %n
  br i1 %ours, label %run, label %next_item
run:
  %to0 = add i64 %from, %grain
  %over = icmp sgt i64 %to0, %n
  %to = select i1 %over, i64 %n, i64 %to0
  call void %kernel(ptr %args, ptr %sizes, ptr %scratch, i64 %from, i64 %to)
  br label %take
next_item:
  %e1 = add i64 %e, 1
  br label %item
meet:
  br i1 %timed, label %meet_timed, label %meet_only
meet_only:
  %go = call i1 @gml_barrier(ptr %control, i64 %threads)
  br i1 %go, label %next_phase, label %done
meet_timed:
  %time_row = add i64 %p, 1
  %of_phase = mul i64 %time_row, %threads
  %of_thread = add i64 %of_phase, %thread
  %pair = mul i64 %of_thread, 2
  %time_at = getelementptr i64, ptr %times, i64 %pair
  %worked = $CLOCK$
  store i64 %worked, ptr %time_at
  %go_timed = call i1 @gml_barrier(ptr %control, i64 %threads)
  %passed_at = getelementptr i64, ptr %time_at, i64 1
  %passed = $CLOCK$
  store i64 %passed, ptr %passed_at
  br i1 %go_timed, label %next_phase, label %done
next_phase:
  %p1 = add i64 %p, 1
  br label %phase
done:
  %whole = phi i1 [ true, %phase ], [ false, %meet_only ], [ false, %meet_timed ]
  ret i1 %whole
}

; one step, with the calling thread as number 0; 1: it came to its end, 0: it was cancelled
define i64 @gml_run(ptr %control) {
entry:
  %step_at = getelementptr i64, ptr %control, i64 $STEP$
  %old = atomicrmw add ptr %step_at, i64 1 seq_cst
  call void @gml_wake(ptr %control, ptr %step_at)
  %whole = call i1 @gml_step(ptr %control, i64 0)
  %result = zext i1 %whole to i64
  ret i64 %result
}

; %seen: the step's number when the worker was made
define void @gml_worker(ptr %control, i64 %thread, i64 %seen) {
entry:
  %step_at = getelementptr i64, ptr %control, i64 $STEP$
  %stop_at = getelementptr i64, ptr %control, i64 $STOP$
  br label %wait
wait:
  %last = phi i64 [ %seen, %entry ], [ %now, %step ]
  call void @gml_wait(ptr %control, ptr %step_at, i64 %last)
  %now = load atomic i64, ptr %step_at seq_cst, align 8
  %stop = load atomic i64, ptr %stop_at seq_cst, align 8
  %leave = icmp ne i64 %stop, 0
  br i1 %leave, label %done, label %step
step:
  %whole = call i1 @gml_step(ptr %control, i64 %thread)
  br label %wait
done:
  ret void
}

define void @gml_pause(i64 %count) {
entry:
  br label %again
again:
  %n = phi i64 [ %count, %entry ], [ %left, %again ]
  $PAUSE$
  %left = sub i64 %n, 1
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %again, label %done
done:
  ret void
}
"""
