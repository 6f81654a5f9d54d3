import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Prints the results of a pipeline: java Results BOOTSTRAP PIPELINE (needs org.apache.kafka:kafka-clients). */
public final class Results {
    /** Reads `aggregates` to its end and prints a line of JSON per result. The last record of each key is valid. */
    public static void main(String[] arguments) {
        Properties options = new Properties();
        options.put("bootstrap.servers", arguments[0]);
        options.put("isolation.level", "read_committed");
        options.put("allow.auto.create.topics", "false");
        String topic = arguments[1] + ".aggregates";
        Map<String, String> latest = new LinkedHashMap<>();
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(options, text, text)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(partition -> new TopicPartition(topic, partition.partition()))
                    .collect(Collectors.toList());
            if (partitions.isEmpty()) {
                throw new IllegalArgumentException("no topic " + topic + " at " + arguments[0]);
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    latest.put(record.key(), record.value());
                }
            }
        }
        // A record without a value deletes the result.
        latest.values().removeIf(value -> value == null);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        latest.values().forEach(out::println);
        out.flush();
    }
}
