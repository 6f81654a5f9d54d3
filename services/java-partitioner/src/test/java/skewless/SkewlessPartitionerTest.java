package skewless;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

class SkewlessPartitionerTest {
    private static final Node NODE = new Node(0, "localhost", 9092);

    /** Returns the lines of the file of recorded decisions: first the keys, then a line for each case. */
    static List<String> lines() throws IOException {
        return Files.readAllLines(Path.of(System.getProperty("vectors")));
    }

    static List<String> cases() throws IOException {
        return lines().subList(1, lines().size());
    }

    static Cluster cluster(int partitions) {
        List<PartitionInfo> found = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            found.add(new PartitionInfo("t", partition, NODE, new Node[] {NODE}, new Node[] {NODE}));
        }
        return new Cluster("c", List.of(NODE), found, Set.of(), Set.of());
    }

    static SkewlessPartitioner partitioner(String... namesAndValues) {
        Map<String, Object> properties = new HashMap<>(Map.of("bootstrap.servers", "localhost:9092"));
        for (int i = 0; i < namesAndValues.length; i += 2) {
            properties.put(namesAndValues[i], namesAndValues[i + 1]);
        }
        SkewlessPartitioner created = new SkewlessPartitioner();
        created.configure(properties);
        return created;
    }

    static int choose(SkewlessPartitioner partitioner, String key, Cluster cluster) {
        byte[] bytes = key == null ? null : key.getBytes(StandardCharsets.UTF_8);
        return partitioner.partition("t", key, bytes, "v", new byte[] {1}, cluster);
    }

    /** A case: properties, the numbers of partitions of the first and second half, and the expected partitions. */
    @ParameterizedTest
    @MethodSource("cases")
    void partitionerEveryRecordedCaseChoosesThePartitionsOfPython(String line) throws IOException {
        String[] fields = line.split("\t");
        String[] sizes = fields[1].split(",");
        SkewlessPartitioner partitioner = partitioner(fields[0].split("[= ]"));
        String[] keys = lines().get(0).split("\t", -1);
        List<String> chosen = new ArrayList<>();
        for (int i = 0; i < keys.length; i++) {
            Cluster cluster = cluster(Integer.parseInt(sizes[i < keys.length / 2 ? 0 : 1]));
            chosen.add(Integer.toString(choose(partitioner, keys[i], cluster)));
        }
        assertEquals(fields[2], String.join(",", chosen));
    }

    @Test
    void partitionerRecordsWithoutKeysGoToAllPartitionsInTurn() {
        SkewlessPartitioner partitioner = partitioner("skewless.grouping", "partial_key");
        int[] chosen = new int[6];
        for (int i = 0; i < chosen.length; i++) {
            chosen[i] = choose(partitioner, null, cluster(3));
        }
        assertTrue(Arrays.equals(chosen, new int[] {0, 1, 2, 0, 1, 2}), Arrays.toString(chosen));
    }

    /** Programs may send the same arrays again, and clients before 4.0 ask twice for a record that needs a new batch. */
    @Test
    void partitionerSameArraysAfterANewBatchAreChosenAsNewRecords() {
        SkewlessPartitioner partitioner = partitioner();
        byte[] value = {1};
        int[] chosen = new int[6];
        for (int i = 0; i < chosen.length; i++) {
            chosen[i] = partitioner.partition("t", null, null, "v", value, cluster(3));
            partitioner.onNewBatch("t", cluster(3), chosen[i]);
            assertEquals(chosen[i], partitioner.partition("t", null, null, "v", value, cluster(3)));
        }
        assertTrue(Arrays.equals(chosen, new int[] {0, 1, 2, 0, 1, 2}), Arrays.toString(chosen));
    }

    @Test
    void partitionerNewBatchOfANamedPartitionRepeatsNoChoiceOfAnotherTopic() {
        SkewlessPartitioner partitioner = partitioner();
        byte[] value = {1};
        assertEquals(0, partitioner.partition("t", null, null, "v", value, cluster(3)));
        partitioner.onNewBatch("u", cluster(3), 0);
        assertEquals(1, partitioner.partition("t", null, null, "v", value, cluster(3)));
    }

    @Test
    void partitionerWithFewerWorkersUsesTheFirstPartitions() {
        SkewlessPartitioner partitioner = partitioner("skewless.workers", "2");
        for (int i = 0; i < 1000; i++) {
            assertTrue(choose(partitioner, "key" + i % 7, cluster(9)) < 2);
        }
    }

    @ParameterizedTest
    @CsvSource({
        "skewless.grouping, evn, Invalid value evn for configuration skewless.grouping",
        "skewless.worker, 3, skewless.worker is unknown: the properties are",
        "skewless.workers, -1, Invalid value -1 for configuration skewless.workers",
        "skewless.workers, two, Invalid value two for configuration skewless.workers",
        "skewless.even.decay_tuples, 9, Invalid value 9 for configuration skewless.even.decay_tuples",
    })
    void partitionerInvalidPropertyIsRefused(String name, String value, String message) {
        ConfigException error = assertThrows(ConfigException.class, () -> partitioner(name, value));
        assertTrue(error.getMessage().startsWith(message), error.getMessage());
    }

    @Test
    void partitionerMoreWorkersThanPartitionsIsRefused() {
        SkewlessPartitioner partitioner = partitioner("skewless.workers", "4");
        ConfigException error = assertThrows(ConfigException.class, () -> choose(partitioner, "a", cluster(3)));
        assertTrue(error.getMessage().endsWith("topic t has 3 partitions"), error.getMessage());
    }
}
