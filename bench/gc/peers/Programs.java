// SPDX-License-Identifier: MIT
// The programs of programs.h in Java. Usage: java Programs WORKLOAD DEPTH THREADS. Prints one line
// of JSON, as touchstone-gc's comparison reads it.

import java.util.ArrayDeque;

final class Programs {
  /** What a run gave. */
  static final class Result {
    long checksum;
    boolean correct = true;
  }

  /** xorshift64*, unsigned. */
  static final class Random {
    private long state;

    Random(long seed) {
      state = seed * 2 + 1;
    }

    long next() {
      state ^= state >>> 12;
      state ^= state << 25;
      state ^= state >>> 27;
      return state * 0x2545f4914f6cdd1dL;
    }

    long below(long limit) {
      return Long.remainderUnsigned(next(), limit);
    }
  }

  static final class Node {
    Node left;
    Node right;
  }

  static final class WideNode {
    WideNode left;
    WideNode right;
    int i;
    int j;
  }

  static Node makeTree(int depth) {
    if (depth == 0) return new Node();
    final Node left;
    final Node right;
    if (depth == 1) {
      left = new Node();
      right = new Node();
    } else {
      left = makeTree(depth - 1);
      right = makeTree(depth - 1);
    }
    final Node node = new Node();
    node.left = left;
    node.right = right;
    return node;
  }

  static long countTree(Node node) {
    return node.left == null ? 1 : 1 + countTree(node.left) + countTree(node.right);
  }

  static WideNode makeWideTree(int depth) {
    if (depth == 0) return new WideNode();
    final WideNode left;
    final WideNode right;
    if (depth == 1) {
      left = new WideNode();
      right = new WideNode();
    } else {
      left = makeWideTree(depth - 1);
      right = makeWideTree(depth - 1);
    }
    final WideNode node = new WideNode();
    node.left = left;
    node.right = right;
    return node;
  }

  static void populate(int depth, WideNode node) {
    if (depth == 0) return;
    node.left = new WideNode();
    node.right = new WideNode();
    if (depth == 1) return;
    populate(depth - 1, node.left);
    populate(depth - 1, node.right);
  }

  static long countWideTree(WideNode node) {
    return node.left == null ? 1 : 1 + countWideTree(node.left) + countWideTree(node.right);
  }

  static void check(Result result, long nodes, int depth) {
    result.checksum += nodes;
    result.correct = result.correct && nodes == (2L << depth) - 1;
  }

  static Result binaryTrees(int depth) {
    final int shallowest = 4;
    final int deepest = Math.max(depth, shallowest + 2);
    final Result result = new Result();
    check(result, countTree(makeTree(deepest + 1)), deepest + 1);
    final Node longLived = makeTree(deepest);
    for (int d = shallowest; d <= deepest; d += 2) {
      final long count = 1L << (deepest - d + shallowest);
      for (long i = 0; i < count; ++i) check(result, countTree(makeTree(d)), d);
    }
    check(result, countTree(longLived), deepest);
    return result;
  }

  static Result gcBench(int deepest) {
    final Result result = new Result();
    check(result, countWideTree(makeWideTree(deepest + 2)), deepest + 2);
    final WideNode longLived = new WideNode();
    populate(deepest, longLived);
    final double[] values = new double[500_000];
    for (int i = 0; i < values.length / 2; ++i) values[i] = 1.0 / (i + 1);
    for (int depth = 4; depth <= deepest; depth += 2) {
      final long count = (2L << (deepest + 2)) / (2L << depth);
      for (long i = 0; i < count; ++i) {
        final WideNode topDown = new WideNode();
        populate(depth, topDown);
        check(result, countWideTree(topDown), depth);
      }
      for (long i = 0; i < count; ++i) check(result, countWideTree(makeWideTree(depth)), depth);
    }
    check(result, countWideTree(longLived), deepest);
    result.correct = result.correct && values[999] == 1.0 / 1000;
    return result;
  }

  static final class Quad {
    Quad c0;
    Quad c1;
    Quad c2;
    Quad c3;
    int x;
    int y;
  }

  static Result quadTree(int depth) {
    final Random random = new Random(7);
    final long points = 1L << depth;
    final Quad root = new Quad();
    root.x = root.y = 1 << 31;
    for (long i = 1; i < points; ++i) {
      final int x = (int) random.next();
      final int y = (int) (random.next() >>> 32);
      final Quad fresh = new Quad();
      fresh.x = x;
      fresh.y = y;
      Quad at = root;
      while (at != null) {
        final boolean right = Integer.compareUnsigned(x, at.x) > 0;
        final Quad next;
        if (Integer.compareUnsigned(y, at.y) > 0) {
          next = right ? at.c3 : at.c2;
          if (next == null) {
            if (right) at.c3 = fresh; else at.c2 = fresh;
          }
        } else {
          next = right ? at.c1 : at.c0;
          if (next == null) {
            if (right) at.c1 = fresh; else at.c0 = fresh;
          }
        }
        at = next;
      }
    }
    final Result result = new Result();
    long found = 0;
    final ArrayDeque<Quad> stack = new ArrayDeque<>();
    stack.push(root);
    while (!stack.isEmpty()) {
      final Quad quad = stack.pop();
      ++found;
      result.checksum = result.checksum * 31 + Integer.toUnsignedLong(quad.x)
          + Integer.toUnsignedLong(quad.y);
      for (int i = 0; i < 4; ++i) {
        final Quad child = i == 0 ? quad.c0 : i == 1 ? quad.c1 : i == 2 ? quad.c2 : quad.c3;
        if (child == null) continue;
        result.correct = result.correct
            && (Integer.compareUnsigned(child.x, quad.x) > 0) == ((i & 1) != 0)
            && (Integer.compareUnsigned(child.y, quad.y) > 0) == ((i & 2) != 0);
        stack.push(child);
      }
    }
    result.correct = result.correct && found == points;
    return result;
  }

  static final class Entry {
    Entry next;
    long key;
    long value;
  }

  static Result hashChurn(int depth) {
    final Random random = new Random(11);
    final int buckets = 1 << depth;
    final long operations = buckets * 16L;
    final long keys = buckets * 2L;
    final Entry[] table = new Entry[buckets];
    final long[] model = new long[(int) keys];
    final Result result = new Result();
    for (long i = 0; i < operations; ++i) {
      final long key = random.below(keys);
      final int bucket = (int) (key * 0x9e3779b97f4a7c15L >>> (64 - depth));
      if ((random.next() & 3) == 0) {
        Entry before = null;
        Entry at = table[bucket];
        while (at != null && at.key != key) {
          before = at;
          at = at.next;
        }
        if (at != null) {
          if (before == null) table[bucket] = at.next; else before.next = at.next;
        }
        model[(int) key] = 0;
      } else {
        final Entry fresh = new Entry();
        fresh.key = key;
        fresh.value = i + 1;
        Entry before = null;
        Entry at = table[bucket];
        while (at != null && at.key != key) {
          before = at;
          at = at.next;
        }
        fresh.next = at != null ? at.next : null;
        if (before == null) table[bucket] = fresh; else before.next = fresh;
        model[(int) key] = i + 1;
      }
    }
    long found = 0;
    for (int i = 0; i < buckets; ++i) {
      for (Entry entry = table[i]; entry != null; entry = entry.next) {
        result.correct = result.correct && model[(int) entry.key] == entry.value;
        result.checksum += entry.key ^ entry.value;
        ++found;
      }
    }
    long wanted = 0;
    for (final long value : model) {
      if (value != 0) ++wanted;
    }
    result.correct = result.correct && found == wanted;
    return result;
  }

  static Result largeArrays(int depth) {
    final Random random = new Random(13);
    final int kept = 8;
    final long rounds = 1L << depth;
    final Entry[][] ring = new Entry[kept][];
    final Result result = new Result();
    for (long i = 0; i < rounds; ++i) {
      final int length = 4096 << (int) random.below(7);
      final Entry[] array = new Entry[length];
      for (int j = 0; j < length; j += 64) {
        final Entry entry = new Entry();
        entry.key = i;
        entry.value = j;
        array[j] = entry;
      }
      ring[(int) (i % kept)] = array;
      final int other = (int) random.below(kept);
      final Entry[] old = ring[other];
      if (old != null) {
        final int j = (int) (random.below(old.length) / 64 * 64);
        final Entry entry = old[j];
        result.correct = result.correct && entry.value == j && entry.key % kept == other;
        result.checksum += entry.value;
      }
    }
    return result;
  }

  static final class GraphNode {
    GraphNode even;
    GraphNode odd;
    long number;
  }

  static Result liveGraph(int depth) {
    final Random random = new Random(17);
    final int count = 1 << depth;
    final GraphNode[] nodes = new GraphNode[count];
    for (int i = 0; i < count; ++i) {
      nodes[i] = new GraphNode();
      nodes[i].number = i;
    }
    for (long i = 0; i < count * 4L; ++i) {
      final GraphNode from = nodes[(int) random.below(count)];
      final GraphNode to = nodes[(int) random.below(count)];
      if ((i & 1) == 0) from.even = to; else from.odd = to;
      if ((i & 7) == 0) {
        final int place = (int) random.below(count);
        final GraphNode node = new GraphNode();
        node.number = place;
        nodes[place] = node;
      }
    }
    final Result result = new Result();
    for (int i = 0; i < count; ++i) {
      final GraphNode node = nodes[i];
      result.correct = result.correct && node.number == i;
      if (node.even != null) result.checksum = result.checksum * 31 + node.even.number;
      if (node.odd != null) result.checksum = result.checksum * 31 + node.odd.number;
    }
    return result;
  }

  static Result onThreads(int count, int depth) throws InterruptedException {
    final Result[] results = new Result[count];
    final Thread[] threads = new Thread[count];
    for (int i = 0; i < count; ++i) {
      final int mine = i;
      threads[i] = new Thread(() -> results[mine] = gcBench(depth));
      threads[i].start();
    }
    final Result sum = new Result();
    for (int i = 0; i < count; ++i) {
      threads[i].join();
      if (results[i] == null) System.exit(4);
      sum.checksum += results[i].checksum;
      sum.correct = sum.correct && results[i].correct;
    }
    return sum;
  }

  public static void main(String[] words) throws InterruptedException {
    if (words.length != 3) {
      System.err.println("usage: WORKLOAD DEPTH THREADS");
      System.exit(2);
    }
    final int depth = Integer.parseInt(words[1]);
    final int threads = Integer.parseInt(words[2]);
    final long start = System.nanoTime();
    Result result = null;
    try {
      switch (words[0]) {
        case "binary-trees" -> result = binaryTrees(depth);
        case "gcbench" -> result = gcBench(depth);
        case "gcbench-mt" -> result = onThreads(threads, depth);
        case "quad-tree" -> result = quadTree(depth);
        case "hash-churn" -> result = hashChurn(depth);
        case "large-arrays" -> result = largeArrays(depth);
        case "live-graph" -> result = liveGraph(depth);
        case "ephemerons" -> {
          System.err.println("it has no ephemerons");
          System.exit(3);
        }
        default -> {
          System.err.println("no such workload");
          System.exit(2);
        }
      }
    } catch (OutOfMemoryError error) {
      System.err.println("out of memory");
      System.exit(4);
    }
    final double seconds = (System.nanoTime() - start) / 1e9;
    System.out.printf(java.util.Locale.ROOT, "{\"seconds\": %.6f, \"checksum\": %s, \"correct\": %b}%n",
        seconds, Long.toUnsignedString(result.checksum), result.correct);
    System.exit(result.correct ? 0 : 1);
  }
}
