r"""The agent's administrators' interface: `agent.proto`, its generated stubs, and a client.

The stubs are made, from the import root, by::

    python -m grpc_tools.protoc -I orion/node_agent/api=orion/node_agent/api \
        --python_out=. --pyi_out=. --grpc_python_out=. orion/node_agent/api/agent.proto
"""
