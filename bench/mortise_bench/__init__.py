"""What the program mortise-bench does, apart from measuring: that is the adapters' (../adapter/adapter.h).

servers and adapter speak with processes; subjects says what there is to measure; workloads, costs and failures are the
kinds of measurement; run takes them in turn; figures is the form of the results, targets what they are held to; page,
tables and pictures tell them."""
