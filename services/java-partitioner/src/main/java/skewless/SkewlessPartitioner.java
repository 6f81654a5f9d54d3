package skewless;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;

/**
 * Spreads the records of hot keys over several partitions, with the decisions of Skewless' groupings `even` and
 * `partial_key`. Each topic of a producer has its own state. Records without a key go to all partitions in turn.
 */
public final class SkewlessPartitioner implements Partitioner {
    private static final String PREFIX = "skewless.";
    private static final String GROUPING = PREFIX + "grouping";
    private static final String WORKERS = PREFIX + "workers";
    private static final String HASH_BUCKETS = PREFIX + "even.hash_buckets";
    private static final String OVERLOAD_TOLERANCE = PREFIX + "even.overload_tolerance";
    private static final String DECAY_TUPLES = PREFIX + "even.decay_tuples";
    private static final ConfigDef PROPERTIES = new ConfigDef()
            .define(GROUPING, Type.STRING, "even", ValidString.in("even", "partial_key"), Importance.HIGH, "")
            .define(WORKERS, Type.INT, 0, Range.atLeast(0), Importance.MEDIUM, "0: all partitions of the topic.")
            .define(HASH_BUCKETS, Type.INT, 32_768, Range.between(256, 1_048_576), Importance.LOW, "")
            .define(OVERLOAD_TOLERANCE, Type.INT, 24, Range.between(1, 1_000_000), Importance.LOW, "")
            .define(DECAY_TUPLES, Type.INT, 5_000, Range.between(100, 10_000_000), Importance.LOW, "");

    private final Map<String, TopicState> topics = new ConcurrentHashMap<>();
    private final ThreadLocal<Choice> choices = ThreadLocal.withInitial(Choice::new);
    private AbstractConfig config;

    @Override
    public void configure(Map<String, ?> properties) {
        for (String name : properties.keySet()) {
            if (name.startsWith(PREFIX) && !PROPERTIES.names().contains(name)) {
                throw new ConfigException(name + " is unknown: the properties are " + PROPERTIES.names());
            }
        }
        config = new AbstractConfig(PROPERTIES, properties, false);
    }

    @Override
    public int partition(
            String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
        Choice choice = choices.get();
        boolean isRepeated = choice.isRepeated;
        choice.isRepeated = false;
        if (isRepeated && choice.keyBytes == keyBytes && choice.valueBytes == valueBytes) {
            return choice.partition;
        }
        int partitions = cluster.partitionsForTopic(topic).size();
        int workers = config.getInt(WORKERS) == 0 ? partitions : config.getInt(WORKERS);
        if (workers > partitions) {
            throw new ConfigException(WORKERS, workers, "topic " + topic + " has " + partitions + " partitions");
        }
        choice.topic = topic;
        choice.keyBytes = keyBytes;
        choice.valueBytes = valueBytes;
        choice.partition = topics.computeIfAbsent(topic, name -> new TopicState()).assign(keyBytes, workers);
        return choice.partition;
    }

    /**
     * Clients before 4.0 call this when a record needs a new batch, and then ask for its partition again. The grouping
     * counts the record once.
     */
    public void onNewBatch(String topic, Cluster cluster, int partition) {
        Choice choice = choices.get();
        choice.isRepeated = topic.equals(choice.topic) && partition == choice.partition;
    }

    @Override
    public void close() {}

    /** The last choice of a thread. Not every record has one: some records name their partition. */
    private static final class Choice {
        private String topic;
        private byte[] keyBytes;
        private byte[] valueBytes;
        private int partition;
        private boolean isRepeated;
    }

    private final class TopicState {
        private Grouping grouping;
        private int workers;
        private int turn;

        synchronized int assign(byte[] key, int needed) {
            if (grouping == null) {
                grouping = create(needed);
            } else if (needed != workers) {
                grouping.resize(needed);
            }
            workers = needed;
            return key == null ? Math.floorMod(turn++, workers) : grouping.assign(key);
        }

        private Grouping create(int needed) {
            return config.getString(GROUPING).equals("partial_key")
                    ? new PartialKeyGrouping(needed)
                    : new EvenGrouping(needed, config.getInt(HASH_BUCKETS), config.getInt(OVERLOAD_TOLERANCE),
                            config.getInt(DECAY_TUPLES));
        }
    }
}
