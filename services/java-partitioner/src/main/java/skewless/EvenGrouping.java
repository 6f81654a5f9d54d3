package skewless;

import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * Each key gets as many workers as its share needs. `services/skewless/algorithms/grouping/even.py` describes the
 * algorithm and its constants; every decision is the same, so each expression has the same order here.
 */
final class EvenGrouping implements Grouping {
    private static final int HOME_SEED = 13;
    private static final double PRIOR_TUPLES = 8.0;
    private static final int LAST_WORKER_EPOCHS = 4;
    private static final double MANY_WORKERS = 50;
    private static final double MAX_TOLERANCE_FACTOR = 2.0;
    private static final double MIN_MEMORY_TOLERANCES = 10.0;
    private static final double HEAVY_LENIENCE = 1.5;
    private static final double MAX_DEFICIT = 0.5;
    private static final double LEAD_THRESHOLD = 0.25;
    private static final double HEAVY_LEAD_THRESHOLD = 0.75;
    private static final double RESCALE_WEIGHT = 1e6;

    private final int toleranceSetting;
    private final int memory;
    // The state of each bucket.
    private final double[] counts;
    private final int[] widths;
    private final int[] places;
    private final int[] epochs;

    private int[] strides;
    private double[] loads;
    private double tolerance;
    private double growth;
    private long epochTuples;
    private double total;
    private double weight = 1.0;
    private double heavy;
    private int epoch;
    private long remaining;

    EvenGrouping(int workers, int hashBuckets, int overloadTolerance, int decayTuples) {
        toleranceSetting = overloadTolerance;
        memory = decayTuples;
        counts = new double[hashBuckets];
        widths = new int[hashBuckets];
        places = new int[hashBuckets];
        epochs = new int[hashBuckets];
        resize(workers);
    }

    @Override
    public void resize(int workers) {
        loads = new double[workers];
        Arrays.fill(loads, total / workers);
        Arrays.fill(widths, 1);
        Arrays.fill(places, 0);
        Arrays.fill(epochs, 0);
        strides = IntStream.rangeClosed(1, workers).filter(step -> gcd(step, workers) == 1).toArray();
        double factor = Math.min(MAX_TOLERANCE_FACTOR, Math.max(1.0, MANY_WORKERS / workers));
        tolerance = Math.min(toleranceSetting * factor, memory / MIN_MEMORY_TOLERANCES);
        epochTuples = (long) memory * workers;
        growth = 1.0 + 1.0 / epochTuples;
        epoch = 0;
        remaining = epochTuples;
    }

    @Override
    public int assign(byte[] key) {
        int workers = loads.length;
        int bucket = Murmur3.hashMod(key, HOME_SEED, counts.length);
        int worker = bucket % workers;
        counts[bucket] += weight;
        double mean = total * (1.0 / workers);
        double fairShare = mean + PRIOR_TUPLES * weight;
        heavy += counts[bucket] > fairShare ? weight : 0.0;
        if (widths[bucket] > 1 || counts[bucket] > fairShare || loads[worker] > mean + 0.5 * tolerance * weight) {
            boolean isOver = bucket * epochTuples < (epochTuples - remaining) * counts.length;
            double lead = tolerance * weight * (1.0 + HEAVY_LENIENCE * heavy / (total + weight));
            worker = chooseInSet(bucket, mean, counts[bucket] / fairShare, lead, isOver ? epoch + 1 : epoch);
        }
        loads[worker] = Math.max(loads[worker], mean - MAX_DEFICIT * tolerance * weight) + weight;
        total += weight;
        weight *= growth;
        if (--remaining <= 0) {
            epoch++;
            remaining = epochTuples;
        }
        if (weight > RESCALE_WEIGHT) {
            Arrays.setAll(loads, each -> loads[each] / weight);
            Arrays.setAll(counts, each -> counts[each] / weight);
            total /= weight;
            heavy /= weight;
            weight = 1.0;
        }
        return worker;
    }

    private int chooseInSet(int bucket, double mean, double share, double lead, int current) {
        int workers = loads.length;
        int home = bucket % workers;
        int stride = strides[bucket / workers % strides.length];
        if (share > widths[bucket] || epochs[bucket] < current) {
            int required = Math.max(1, Math.min(workers, (int) Math.ceil(share)));
            int excess = Math.max(0, widths[bucket] - required);
            int passed = Math.max(0, current - epochs[bucket]);
            if (excess != 1 || passed >= LAST_WORKER_EPOCHS) {
                widths[bucket] = required + (excess >> Math.min(passed, 31));
                epochs[bucket] = Math.max(epochs[bucket], current);
                places[bucket] = Math.min(places[bucket], widths[bucket] - 1);
            }
        }
        double allowed = lead / (1.0 + share);
        double accepted = allowed * (share > 1.0 ? HEAVY_LEAD_THRESHOLD : LEAD_THRESHOLD);
        int place = leastLoaded(home, stride, places[bucket], widths[bucket], mean + accepted);
        int worker = workerAt(home, stride, place);
        if (loads[worker] > mean + allowed) {
            int next = findLessLoaded(home, stride, widths[bucket], loads[worker] - allowed);
            if (next > 0) {
                place = next;
                worker = workerAt(home, stride, next);
                widths[bucket] = place + 1;
                epochs[bucket] = current + 1;
            }
        }
        places[bucket] = place;
        return worker;
    }

    /** Returns the place of the first load of at most the limit, from a place on, or of the lowest load if none. */
    private int leastLoaded(int home, int stride, int place, int width, double limit) {
        int best = place;
        for (int step = 1; step < width; step++) {
            if (loads[workerAt(home, stride, place)] <= limit) {
                return place;
            }
            place = place + 1 == width ? 0 : place + 1;
            if (loads[workerAt(home, stride, place)] < loads[workerAt(home, stride, best)]) {
                best = place;
            }
        }
        return best;
    }

    /** Returns the place of the next worker with at most this load, among as many as the set has, after it; 0 if none. */
    private int findLessLoaded(int home, int stride, int width, double limit) {
        for (int place = width; place < Math.min(2 * width, loads.length); place++) {
            if (loads[workerAt(home, stride, place)] <= limit) {
                return place;
            }
        }
        return 0;
    }

    private int workerAt(int home, int stride, int place) {
        return (int) ((home + (long) place * stride) % loads.length);
    }

    private static int gcd(int a, int b) {
        return b == 0 ? a : gcd(b, a % b);
    }
}
