package skewless;

/** Partial key grouping: of the two candidates of a key, the one that got fewer records so far. */
final class PartialKeyGrouping implements Grouping {
    private long[] sent;

    PartialKeyGrouping(int workers) {
        resize(workers);
    }

    @Override
    public int assign(byte[] key) {
        int first = Murmur3.hashMod(key, 13, sent.length);
        int second = Murmur3.hashMod(key, 17, sent.length);
        int worker = sent[second] < sent[first] ? second : first;
        sent[worker]++;
        return worker;
    }

    @Override
    public void resize(int workers) {
        sent = new long[workers];
    }
}
