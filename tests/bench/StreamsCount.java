import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Counts the records of each key in tumbling windows with Kafka Streams, until it is terminated. The key is the field
 * "key" of the JSON value, the event time is the timestamp. The key is repartitioned, as each key in a value must be.
 *
 * <p>Arguments: bootstrap servers, application id, source topic, output topic, window ms, commit interval ms, state
 * folder.
 */
public final class StreamsCount {
    private static final String KEY = "\"key\":\"";

    public static void main(String[] args) {
        Properties options = new Properties();
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        options.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args[5]);
        options.put(StreamsConfig.STATE_DIR_CONFIG, args[6]);
        options.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        options.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        options.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        options.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "latest");
        options.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .map((key, value) -> KeyValue.pair(keyOf(value), 1L))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMillis(Long.parseLong(args[4]))))
                .count()
                .toStream((window, count) -> window.window().start() + "/" + window.key())
                .to(args[3], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), options);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static String keyOf(byte[] value) {
        String text = new String(value, StandardCharsets.UTF_8);
        int begin = text.indexOf(KEY) + KEY.length();
        return text.substring(begin, text.indexOf('"', begin));
    }
}
