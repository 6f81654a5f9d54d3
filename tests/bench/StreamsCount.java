import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Counts and sums the values of each key in tumbling windows with Kafka Streams. Key, value and event time are fields of
 * the JSON. The key is repartitioned, as each key in a value must be.
 *
 * <p>Arguments: bootstrap servers, application id, source topic, output topic, window ms, commit interval ms, state
 * folder. With these, it reads new records and writes each update until it is terminated.
 *
 * <p>Further arguments: threads, grace ms, partitions, records, results. With these, it reads the topic from the start,
 * writes only final results, and ends after the last one. Kafka Streams closes a window only when later records arrive,
 * so the program sends a later record to each partition of the repartition topic after all records are aggregated.
 */
public final class StreamsCount {
    private static final JsonFactory JSON = new JsonFactory();
    private static final String BY_KEY = "by-key";
    private static final String CACHE_BYTES = String.valueOf(128 << 20);

    private record Event(String key, long value, long time) {}

    private record Statistics(long count, long sum) {}

    public static void main(String[] args) throws Exception {
        boolean isFinal = args.length > 7;
        Properties options = new Properties();
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        options.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args[5]);
        options.put(StreamsConfig.STATE_DIR_CONFIG, args[6]);
        options.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        options.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, isFinal ? args[7] : "1");
        options.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        options.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, isFinal ? "earliest" : "latest");
        options.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
        if (isFinal) {
            options.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, CACHE_BYTES);
        }
        Duration grace = Duration.ofMillis(isFinal ? Long.parseLong(args[8]) : 0);
        AtomicLong aggregated = new AtomicLong();
        AtomicLong results = new AtomicLong();
        CountDownLatch allAggregated = new CountDownLatch(1);
        CountDownLatch allResults = new CountDownLatch(1);
        long records = isFinal ? Long.parseLong(args[10]) : 0;
        long expected = isFinal ? Long.parseLong(args[11]) : 0;

        StreamsBuilder builder = new StreamsBuilder();
        KTable<Windowed<String>, Statistics> table = builder.stream(
                        args[2],
                        Consumed.with(Serdes.ByteArray(), serde(StreamsCount::noBytes, StreamsCount::parsed))
                                .withTimestampExtractor((record, previous) -> ((Event) record.value()).time()))
                .map((key, event) -> KeyValue.pair(event.key(), event.value()))
                .groupByKey(Grouped.<String, Long>as(BY_KEY).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(Long.parseLong(args[4])), grace))
                .aggregate(
                        () -> new Statistics(0, 0),
                        (key, value, sum) -> {
                            if (aggregated.incrementAndGet() == records) {
                                allAggregated.countDown();
                            }
                            return new Statistics(sum.count() + 1, sum.sum() + value);
                        },
                        Materialized.<String, Statistics, WindowStore<Bytes, byte[]>>with(
                                Serdes.String(), serde(StreamsCount::bytes, StreamsCount::statistics)));
        if (isFinal) {
            table = table.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
        }
        table.toStream()
                .map((window, sum) -> KeyValue.pair(window.key(), json(window, sum)))
                .peek((key, value) -> {
                    if (results.incrementAndGet() == expected) {
                        allResults.countDown();
                    }
                })
                .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), options);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        if (isFinal) {
            allAggregated.await();
            closeWindows(args[0], args[1] + "-" + BY_KEY + "-repartition", Integer.parseInt(args[9]));
            allResults.await();
            streams.close();
        }
    }

    /** Send a record of the wall-clock time to each partition: the event times of the data set are earlier. */
    private static void closeWindows(String bootstrap, String topic, int partitions) {
        Properties options = new Properties();
        options.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        try (var producer = new KafkaProducer<>(options, new StringSerializer(), new LongSerializer())) {
            long now = System.currentTimeMillis();
            for (int partition = 0; partition < partitions; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, now, "last", 0L));
            }
        }
    }

    private static Event parsed(byte[] json) {
        String key = null;
        long value = 0;
        long time = 0;
        try (JsonParser parser = JSON.createParser(json)) {
            parser.nextToken();
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                JsonToken token = parser.nextToken();
                switch (name) {
                    case "key" -> key = parser.getText();
                    case "value" -> value = parser.getLongValue();
                    case "time" -> time = parser.getLongValue();
                    default -> {
                        if (token.isStructStart()) {
                            parser.skipChildren();
                        }
                    }
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Event(key, value, time);
    }

    private static byte[] noBytes(Event event) {
        throw new UnsupportedOperationException("an event is not written");
    }

    private static byte[] bytes(Statistics sum) {
        return ByteBuffer.allocate(16).putLong(sum.count()).putLong(sum.sum()).array();
    }

    private static Statistics statistics(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        return new Statistics(buffer.getLong(), buffer.getLong());
    }

    private static <T> Serde<T> serde(
            Function<T, byte[]> write, Function<byte[], T> read) {
        return Serdes.serdeFrom(
                (topic, value) -> value == null ? null : write.apply(value),
                (topic, bytes) -> bytes == null ? null : read.apply(bytes));
    }

    private static String json(Windowed<String> window, Statistics sum) {
        return "{\"key\":\"" + window.key() + "\",\"window_start\":" + window.window().start() + ",\"count\":"
                + sum.count() + ",\"sum\":" + sum.sum() + "}";
    }
}
