import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Spreads a hot key over the partitions of a topic: SpreadHotKey BOOTSTRAP TOPIC [PROPERTY=VALUE ...] < lines. Each line
 * is a key, a tab, and a value; a line without a tab is a record without a key.
 */
public final class SpreadHotKey {
    public static void main(String[] args) throws IOException {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        properties.put("partitioner.class", "skewless.SkewlessPartitioner");
        for (int i = 2; i < args.length; i++) {
            String[] nameAndValue = args[i].split("=", 2);
            properties.put(nameAndValue[0], nameAndValue[1]);
        }
        List<Exception> failures = Collections.synchronizedList(new ArrayList<>());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                int tab = line.indexOf('\t');
                String key = tab < 0 ? null : line.substring(0, tab);
                producer.send(new ProducerRecord<>(args[1], key, line.substring(tab + 1)), (metadata, error) -> {
                    if (error != null) {
                        failures.add(error);
                    }
                });
            }
        }
        if (!failures.isEmpty()) {
            System.err.println(failures.size() + " records were not delivered: " + failures.get(0).getMessage());
            System.exit(1);
        }
    }
}
