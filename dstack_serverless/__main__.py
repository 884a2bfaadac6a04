"""The command line, as `dstack`, as `dstack-serverless` and as `python -m dstack_serverless`."""

from cli.main import main

if __name__ == "__main__":
    main()
