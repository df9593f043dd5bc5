package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What is done with each datagram: what weir's own servers do when they are measured. The stamp
// is read and checked, its number marked in a bitmap, latency and body of some looked at.
// crates/weir-load/src/{stamp,audit,latency} say what and why.

const (
	stampBytes    = 32
	stampMagic    = 0x72696577 // "weir"
	stampVersion  = 2
	sequenceBits  = 40
	proofsMost    = 4096
	patternBytes  = 65507
	chunkNumbers  = 1 << 16
	chunksMost    = 4096 // 32 MiB of bitmaps
	histogramStep = 128
	histogramTop  = 36
)

type runAsk struct {
	Run          uint32  `json:"run"`
	WarmUpRun    *uint32 `json:"warm_up_run"`
	SizeBytes    int     `json:"size_bytes"`
	Flows        int     `json:"flows"`
	VerifyEvery  uint32  `json:"verify_every"`
	LatencyEvery uint32  `json:"latency_every"`
	// Whether it is one with the runs that are open, of other generators.
	Beside bool `json:"beside"`
}

type chunk [chunkNumbers / 64]uint64

type flow struct {
	beyondHighest uint64
	chunk         *chunk
	chunkAt       uint64
	chunks        map[uint64]*chunk
}

// A run as the receiving goroutine knows it. It alone writes; others read after its counts have
// stopped to change, which they see by an atomic load that follows its writes.
type run struct {
	ask          runAsk
	all          []runAsk // of each generator; flows are numbered on from one to the next
	started      atomic.Bool
	flows        []flow
	chunksLeft   int
	untilVerify  uint32
	untilLatency uint32

	received, warmUp, strangers, corruptHeaders, corruptBodies uint64
	wrongSize, duplicates, reordered, unknownFlow, untracked   uint64
	clockDisagreements                                         uint64
	proofMask                                                  uint32
	proofs                                                     [][3]uint64
	latencies                                                  [(histogramTop - 7 + 2) * histogramStep]uint64
}

type sink struct {
	current                     atomic.Pointer[run]
	steps                       uint32
	random                      uint32
	handled                     uint64
	pattern                     []byte
	clock                       clock
	receivedShown, handledShown atomic.Uint64
	handledBefore               uint64
}

func newSink(steps *uint32) *sink {
	s := &sink{random: 1, pattern: pattern(), clock: newClock()}
	if steps != nil {
		s.steps = *steps
	}
	return s
}

// Takes what came as one: datagrams of segmentBytes, the last of which may be shorter.
func (s *sink) segments(all []byte, segmentBytes int) {
	if segmentBytes <= 0 || len(all) <= segmentBytes {
		s.datagram(all)
		return
	}
	for len(all) > 0 {
		length := min(segmentBytes, len(all))
		s.datagram(all[:length])
		all = all[length:]
	}
}

func (s *sink) datagram(datagram []byte) {
	s.handled++
	random := s.random
	for i := uint32(0); i <= s.steps; i++ {
		random = random*1664525 + 1013904223
	}
	s.random = random
	if r := s.current.Load(); r != nil {
		r.record(s, datagram)
	}
}

// Shows others what was counted.
func (s *sink) publish() {
	if r := s.current.Load(); r != nil {
		s.receivedShown.Store(r.received)
	}
	s.handledShown.Store(s.handled)
}

func (s *sink) counts() (received, handled uint64) {
	return s.receivedShown.Load(), s.handledShown.Load()
}

func (s *sink) begin(ask runAsk) {
	all := []runAsk{ask}
	if open := s.current.Load(); ask.Beside && open != nil {
		all = append(slices.Clone(open.all), ask)
	}
	flows := 0
	for _, ask := range all {
		flows += ask.Flows
	}
	r := &run{ask: ask, all: all, flows: make([]flow, flows), chunksLeft: chunksMost, proofs: [][3]uint64{}}
	r.untilVerify, r.untilLatency = 1, 1
	for i := range r.flows {
		r.flows[i].chunkAt = math.MaxUint64
		r.flows[i].chunks = map[uint64]*chunk{}
	}
	r.started.Store(ask.WarmUpRun == nil)
	s.receivedShown.Store(0)
	s.handledBefore = s.handledShown.Load()
	s.current.Store(r)
}

func (s *sink) start() {
	if r := s.current.Load(); r != nil {
		r.started.Store(true)
		s.handledBefore = s.handledShown.Load()
	}
}

func (s *sink) end() map[string]any {
	handled := s.handledShown.Load() // what was written before it can be read now
	r := s.current.Swap(nil)
	if r == nil {
		return map[string]any{"error": "no run is open"}
	}
	histogram := [][2]uint64{}
	for bucket, count := range r.latencies {
		if count > 0 {
			histogram = append(histogram, [2]uint64{middleOf(uint64(bucket)), count})
		}
	}
	return map[string]any{
		"received": r.received, "strangers": r.strangers, "warm_up": r.warmUp,
		"corrupt_headers": r.corruptHeaders, "corrupt_bodies": r.corruptBodies,
		"unknown_flow": r.unknownFlow, "wrong_size": r.wrongSize, "duplicates": r.duplicates,
		"reordered": r.reordered, "untracked": r.untracked,
		"clock_disagreements": r.clockDisagreements, "latency_histogram": histogram,
		"proof":    map[string]any{"mask": r.proofMask, "datagrams": r.proofs},
		"counters": map[string]uint64{"datagrams": handled - s.handledBefore},
	}
}

func (r *run) record(s *sink, datagram []byte) {
	if len(datagram) < stampBytes {
		r.withoutStamp(s, datagram)
		return
	}
	first := binary.LittleEndian.Uint64(datagram)
	second := binary.LittleEndian.Uint64(datagram[8:])
	numbers := binary.LittleEndian.Uint64(datagram[16:])
	dueNs := binary.LittleEndian.Uint64(datagram[24:])
	if uint32(first) != stampMagic {
		r.strangers++
		return
	}
	id := uint32(second)
	if check(first, id, numbers, dueNs) != uint32(second>>32) || uint16(first>>32) != stampVersion {
		r.corruptHeaders++
		return
	}
	firstFlow := 0
	for i := range r.all {
		ask := &r.all[i]
		if ask.WarmUpRun != nil && id == *ask.WarmUpRun {
			r.warmUp++
			return
		}
		if id == ask.Run {
			r.received++
			r.takeTime(s, dueNs, true)
			if number := int(uint16(first >> 48)); number < ask.Flows {
				r.inSequence(firstFlow+number, numbers&(1<<sequenceBits-1), uint32(numbers>>sequenceBits))
			} else {
				r.unknownFlow++
			}
			if len(datagram) != ask.SizeBytes {
				r.wrongSize++
			}
			r.verify(s, datagram, stampBytes)
			return
		}
		firstFlow += ask.Flows
	}
	r.strangers++
}

func (r *run) withoutStamp(s *sink, datagram []byte) {
	if r.ask.SizeBytes >= stampBytes || len(datagram) != r.ask.SizeBytes {
		r.strangers++
		return
	}
	if !r.started.Load() {
		r.warmUp++
		return
	}
	r.received++
	r.takeTime(s, 0, false)
	r.verify(s, datagram, 0)
}

func (r *run) inSequence(number int, sequence uint64, proof uint32) {
	f := &r.flows[number]
	late := sequence < f.beyondHighest
	if !late {
		f.beyondHighest = sequence + 1
	}
	if at := sequence / chunkNumbers; f.chunkAt != at {
		f.chunk = f.chunks[at]
		if f.chunk == nil && r.chunksLeft > 0 {
			r.chunksLeft--
			f.chunk = new(chunk)
			f.chunks[at] = f.chunk
		}
		f.chunkAt = at
	}
	if f.chunk == nil {
		r.untracked++
	} else {
		word, bit := &f.chunk[sequence%chunkNumbers/64], uint64(1)<<(sequence%64)
		if *word&bit != 0 {
			r.duplicates++
			return
		}
		*word |= bit
	}
	if proof&r.proofMask == 0 {
		r.keepProof([3]uint64{uint64(number), sequence, uint64(proof)})
	}
	if late {
		r.reordered++
	}
}

// Keeps what shows that a datagram was read. Where there are too many, half of them are forgotten.
func (r *run) keepProof(shown [3]uint64) {
	r.proofs = append(r.proofs, shown)
	for len(r.proofs) > proofsMost {
		r.proofMask = r.proofMask<<1 | 1
		r.proofs = slices.DeleteFunc(r.proofs, func(shown [3]uint64) bool {
			return uint32(shown[2])&r.proofMask != 0
		})
	}
}

func (r *run) takeTime(s *sink, dueNs uint64, stamped bool) {
	r.untilLatency--
	if r.untilLatency != 0 {
		return
	}
	r.untilLatency = r.ask.LatencyEvery
	now := s.clock.now()
	switch {
	case !stamped:
	case now < dueNs:
		r.clockDisagreements++
	default:
		r.latencies[bucketOf(now-dueNs)]++
	}
}

func (r *run) verify(s *sink, datagram []byte, from int) {
	r.untilVerify--
	if r.untilVerify != 0 {
		return
	}
	r.untilVerify = r.ask.VerifyEvery
	if !bytes.Equal(datagram[from:], s.pattern[from:len(datagram)]) {
		r.corruptBodies++
	}
}

func check(first uint64, id uint32, numbers, dueNs uint64) uint32 {
	fold := func(a, b uint64) uint64 {
		high, low := bits.Mul64(a, b)
		return low ^ high
	}
	hash := fold(first^0x6a09e667f3bcc909, uint64(id)^0xbb67ae8584caa73b) ^
		bits.RotateLeft64(fold(numbers^0x3c6ef372fe94f82b, dueNs^0xa54ff53a5f1d36f1), 17)
	return uint32(hash ^ hash>>32)
}

func pattern() []byte {
	state := uint64(0x9e3779b97f4a7c15)
	all := make([]byte, patternBytes)
	for i := range all {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		all[i] = byte(state >> 32)
	}
	return all
}

func bucketOf(ns uint64) uint64 {
	ns = min(ns, 1<<(histogramTop+1)-1)
	shift := uint64(63-bits.LeadingZeros64(ns|histogramStep)) - 7
	return shift*histogramStep + ns>>shift
}

func middleOf(bucket uint64) uint64 {
	if bucket < 2*histogramStep {
		return bucket
	}
	shift := bucket/histogramStep - 1
	return (bucket-shift*histogramStep)<<shift + 1<<shift/2
}

// CLOCK_MONOTONIC, by way of Go's own clock, which reads the same without a system call and counts
// from the start of the program.
type clock struct {
	began   time.Time
	beganNs uint64
}

func newClock() clock {
	c := clock{began: time.Now()}
	closest := time.Duration(math.MaxInt64)
	for range 1000 {
		var now unix.Timespec
		before := time.Since(c.began)
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			continue
		}
		after := time.Since(c.began)
		if after-before < closest {
			closest = after - before
			c.beganNs = uint64(now.Nano()) - uint64(before+closest/2)
		}
	}
	return c
}

func (c *clock) now() uint64 {
	return c.beganNs + uint64(time.Since(c.began))
}
