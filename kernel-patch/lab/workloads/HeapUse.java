// SPDX-License-Identifier: GPL-2.0-only
// Fills a part of the heap, then reads and writes it at random, twice, and reports what the system
// says of each: new faults, huge pages, and time (which counts instructions where guest time does).
import java.nio.file.Files;
import java.nio.file.Path;

public final class HeapUse {
  private static final int kLongsPerMebibyte = 1 << 17;

  public static void main(String[] arguments) throws Exception {
    final int mebibytes = Integer.parseInt(arguments[1]);
    final int rounds = Integer.parseInt(arguments[2]);
    final long[][] heap = new long[mebibytes][];
    for (int i = 0; i < mebibytes; ++i) {
      heap[i] = new long[kLongsPerMebibyte];
    }
    long state = 42;
    for (int pass = 1; pass <= 2; ++pass) {
      final long faults = faults();
      final long start = System.nanoTime();
      long sum = 0;
      for (int i = 0; i < rounds * mebibytes * 256; ++i) {
        state = state * 6364136223846793005L + 1442695040888963407L;
        final long[] part = heap[(int) ((state >>> 33) % mebibytes)];
        final int at = (int) (state >>> 24) & (kLongsPerMebibyte - 1);
        sum += part[at];
        part[at] = i;
      }
      final long took = System.nanoTime() - start;
      System.out.println(
          "@@ {\"type\":\"heap use\",\"what\":\"" + arguments[0] + "\",\"pass\":" + pass
              + ",\"faults\":" + (faults() - faults) + ",\"huge_kb\":" + hugeKilobytes()
              + ",\"instructions\":" + took + ",\"sum\":" + sum + "}");
    }
  }

  // Minor faults of the process: the tenth field of its stat.
  private static long faults() throws Exception {
    return Long.parseLong(Files.readString(Path.of("/proc/self/stat")).split(" ")[9]);
  }

  private static long hugeKilobytes() throws Exception {
    for (String line : Files.readAllLines(Path.of("/proc/self/smaps_rollup"))) {
      if (line.startsWith("AnonHugePages:")) {
        return Long.parseLong(line.replaceAll("[^0-9]", ""));
      }
    }
    return -1;
  }
}
