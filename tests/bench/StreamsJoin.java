import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/**
 * Joins two topics with the stream-stream left join of Kafka Streams, until it has read a number of records, and prints
 * the numbers of pairs and unmatched records. The id is the record key, the event time is the timestamp, so no record
 * is parsed.
 *
 * <p>Arguments: bootstrap servers, application id, left topic, right topic, output topic, number of records, apart ms,
 * grace ms, commit interval ms, stores (rocksdb or memory), state folder.
 */
public final class StreamsJoin {
    private static final byte[] ID = "{\"id\":\"".getBytes(StandardCharsets.UTF_8);
    private static final byte[] LEFT = "\",\"left\":".getBytes(StandardCharsets.UTF_8);
    private static final byte[] RIGHT = ",\"right\":".getBytes(StandardCharsets.UTF_8);
    private static final byte[] END = "}".getBytes(StandardCharsets.UTF_8);
    private static final byte[] NOTHING = "null".getBytes(StandardCharsets.UTF_8);

    public static void main(String[] args) throws InterruptedException {
        Properties options = new Properties();
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        options.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args[8]);
        options.put(StreamsConfig.STATE_DIR_CONFIG, args[10]);
        options.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        options.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        options.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        options.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        if (args[9].equals("memory")) {
            options.put(
                    StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                    BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        AtomicLong read = new AtomicLong();
        AtomicLong pairs = new AtomicLong();
        AtomicLong unmatched = new AtomicLong();
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<byte[], byte[]> bytes = Consumed.with(Serdes.ByteArray(), Serdes.ByteArray());
        KStream<byte[], byte[]> left = builder.stream(args[2], bytes).peek((id, value) -> read.incrementAndGet());
        KStream<byte[], byte[]> right = builder.stream(args[3], bytes).peek((id, value) -> read.incrementAndGet());
        JoinWindows window =
                JoinWindows.ofTimeDifferenceAndGrace(
                                Duration.ofMillis(Long.parseLong(args[6])), Duration.ofMillis(Long.parseLong(args[7])))
                        .before(Duration.ZERO);
        left.leftJoin(
                        right,
                        (id, leftValue, rightValue) -> {
                            (rightValue == null ? unmatched : pairs).incrementAndGet();
                            return joined(ID, id, LEFT, leftValue, RIGHT, rightValue == null ? NOTHING : rightValue, END);
                        },
                        window,
                        StreamJoined.with(Serdes.ByteArray(), Serdes.ByteArray(), Serdes.ByteArray()))
                .to(args[4], Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
        KafkaStreams streams = new KafkaStreams(builder.build(), options);
        streams.start();
        long records = Long.parseLong(args[5]);
        while (read.get() < records) {
            if (streams.state().hasCompletedShutdown()) {
                throw new IllegalStateException("Kafka Streams ended after " + read.get() + " records");
            }
            Thread.sleep(20);
        }
        streams.close();
        System.out.println("{\"pairs\": " + pairs.get() + ", \"unmatched\": " + unmatched.get() + "}");
    }

    private static byte[] joined(byte[]... parts) {
        int size = 0;
        for (byte[] part : parts) {
            size += part.length;
        }
        byte[] all = new byte[size];
        int at = 0;
        for (byte[] part : parts) {
            System.arraycopy(part, 0, all, at, part.length);
            at += part.length;
        }
        return all;
    }
}
