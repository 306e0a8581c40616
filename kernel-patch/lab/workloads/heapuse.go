// SPDX-License-Identifier: GPL-2.0-only

// Heapuse touches a fresh slice of the Go heap in one of four ways, then uses it at random, twice, and
// reports what the system says of each: new faults, huge pages, and time (which counts instructions
// where guest time does).
//
// Pass 0 is the touching.
//
// usage: heapuse NAME store|atomic|zero|read MIB ROUNDS
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	wordsPerMebibyte = 1 << 17
	wordsPerPage     = 512
)

func main() {
	name, how := os.Args[1], os.Args[2]
	mebibytes, _ := strconv.Atoi(os.Args[3])
	rounds, _ := strconv.Atoi(os.Args[4])
	if mebibytes <= 0 || rounds < 0 {
		fmt.Fprintln(os.Stderr, "heapuse: no such size")
		os.Exit(2)
	}
	debug.SetGCPercent(-1)
	words := mebibytes * wordsPerMebibyte
	var heap []uint64
	report(name, 0, func() uint64 {
		switch how {
		case "store":
			heap = make([]uint64, words)
			for i := 0; i < words; i += wordsPerPage {
				heap[i] = 1
			}
		case "atomic":
			heap = make([]uint64, words)
			for i := 0; i < words; i += wordsPerPage {
				atomic.AddUint64(&heap[i], 1)
			}
		case "zero":
			// The runtime gives the first one back, and zeroes the memory for the second.
			heap = make([]uint64, words)
			heap[0] = 1
			heap = nil
			runtime.GC()
			heap = make([]uint64, words)
		case "read":
			heap = make([]uint64, words)
			sum := uint64(0)
			for i := 0; i < words; i += wordsPerPage {
				sum += heap[i]
			}
			return sum
		default:
			fmt.Fprintln(os.Stderr, "heapuse: what is", how)
			os.Exit(2)
		}
		return 0
	})
	state := uint64(42)
	for pass := 1; pass <= 2; pass++ {
		report(name, pass, func() uint64 {
			sum := uint64(0)
			for i := 0; i < rounds*mebibytes*256; i++ {
				state = state*6364136223846793005 + 1442695040888963407
				at := (state >> 24) % uint64(words)
				sum += heap[at]
				heap[at] = uint64(i)
			}
			return sum
		})
	}
}

func report(name string, pass int, work func() uint64) {
	before := faults()
	start := time.Now()
	sum := work()
	took := time.Since(start).Nanoseconds()
	after := faults()
	fmt.Printf("@@ {\"type\":\"heap use\",\"what\":%q,\"pass\":%d,\"faults\":%d,\"huge_kb\":%d,\"instructions\":%d,\"sum\":%d}\n",
		name, pass, after-before, hugeKilobytes(), took, sum)
}

// Minor faults of the process: the tenth field of its stat.
func faults() int64 {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		panic(err)
	}
	count, err := strconv.ParseInt(strings.Fields(string(text))[9], 10, 64)
	if err != nil {
		panic(err)
	}
	return count
}

func hugeKilobytes() int64 {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "AnonHugePages:" {
			count, _ := strconv.ParseInt(words[1], 10, 64)
			return count
		}
	}
	return -1
}
