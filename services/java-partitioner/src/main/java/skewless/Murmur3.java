package skewless;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** 128-bit murmur3 (x64). */
final class Murmur3 {
    private static final long C1 = 0x87c37b91114253d5L;
    private static final long C2 = 0x4cf5ad432745937fL;

    private Murmur3() {}

    /** Returns the absolute value of the first 64-bit word of the hash, mod n. */
    static int hashMod(byte[] key, int seed, int n) {
        // abs() returns the smallest long unchanged. Read as unsigned, its bits are 2^63, as in Python.
        return (int) Long.remainderUnsigned(Math.abs(hash(key, seed)), n);
    }

    private static long hash(byte[] key, int seed) {
        // The last block ends with zeros, which do not change the hash. It has no word if the key ends with a block.
        ByteBuffer data = ByteBuffer.wrap(Arrays.copyOf(key, (key.length / 16 + 1) * 16));
        data.order(ByteOrder.LITTLE_ENDIAN);
        long first = seed;
        long second = seed;
        for (int block = 0; block < key.length / 16; block++) {
            first ^= Long.rotateLeft(data.getLong() * C1, 31) * C2;
            first = (Long.rotateLeft(first, 27) + second) * 5 + 0x52dce729;
            second ^= Long.rotateLeft(data.getLong() * C2, 33) * C1;
            second = (Long.rotateLeft(second, 31) + first) * 5 + 0x38495ab5;
        }
        first ^= Long.rotateLeft(data.getLong() * C1, 31) * C2 ^ key.length;
        second ^= Long.rotateLeft(data.getLong() * C2, 33) * C1 ^ key.length;
        first += second;
        second += first;
        return mix(first) + mix(second);
    }

    private static long mix(long word) {
        word = (word ^ word >>> 33) * 0xff51afd7ed558ccdL;
        word = (word ^ word >>> 33) * 0xc4ceb9fe1a85ec53L;
        return word ^ word >>> 33;
    }
}
