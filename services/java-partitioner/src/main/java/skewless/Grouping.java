package skewless;

/** Chooses among workers 0 to workers - 1 from the keys so far. Not thread-safe. */
interface Grouping {
    /** Returns the worker of the next record. The key is the UTF-8 bytes of its text. */
    int assign(byte[] key);

    /** Changes the number of workers, which is at least 1. */
    void resize(int workers);
}
